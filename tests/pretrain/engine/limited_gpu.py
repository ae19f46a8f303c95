"""`python -m pretrain` on a CPU that tries passes as a GPU does, and has little memory.

The environment: ROWS_OF_RANKS="6 3" are the rows at which each rank runs out of memory.
"""

import os
import sys

import torch

from pretrain.__main__ import main
from pretrain.engine.memory_trial import TRIED, GpuMemory
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel


class LimitedGpu(GpuMemory):
    """Takes no more of its memory than fits; a pass of too many rows raises what torch raises."""

    def free_bytes(self):
        return 2**30

    def begin(self):
        pass

    def peak_bytes(self):
        return 2**20

    def release(self):
        pass


class LimitedModel(MaskedLanguageModel):
    """A model whose passes of too many rows do not fit."""

    most_rows = int(os.environ["ROWS_OF_RANKS"].split()[int(os.environ.get("RANK", "0"))])

    def forward(self, ids_BS, *others):
        if self.training and len(ids_BS) > self.most_rows:
            torch.rand(1)  # what a real pass would have drawn
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(ids_BS, *others)


if __name__ == "__main__":
    from pretrain.model.objectives.catalog import OBJECTIVES

    TRIED["cpu"] = LimitedGpu()
    OBJECTIVES["masked_language_model"] = LimitedModel
    main(sys.argv[1:])
