"""`python -m pretrain` on a CPU that tries passes as a GPU does, and has little memory.

The environment: ROWS_OF_RANKS="6 3" are the rows at which each rank runs out of memory.
"""

import os
import sys

from pretrain.__main__ import main
from pretrain.engine import micro_batches
from pretrain.model.objectives.catalog import OBJECTIVES
from tests.pretrain.engine.test_micro_batches import LimitedModel

if __name__ == "__main__":
    rank = int(os.environ.get("RANK", "0"))
    LimitedModel.most_rows = int(os.environ["ROWS_OF_RANKS"].split()[rank])
    micro_batches.TRIED = ("cpu",)
    OBJECTIVES["masked_language_model"] = LimitedModel
    main(sys.argv[1:])
