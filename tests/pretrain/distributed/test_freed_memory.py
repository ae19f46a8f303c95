import os
import resource

import pytest
import torch

from pretrain.distributed.freed_memory import keep_freed_memory
from tests.forked_command import run_module


@pytest.mark.parametrize(("variable", "keeps"), [({}, True), ({"MALLOC_ARENA_MAX": "1"}, False)])
def test_freed_memory_is_used_again_unless_the_environment_decides(variable, keeps, monkeypatch):
    """Page faults of blocks of 64 MiB: 16,384 for each that the kernel hands out anew."""
    for name in [name for name in os.environ if "MALLOC_" in name]:
        monkeypatch.delenv(name)
    status, output, errors = run_module("tests.pretrain.distributed.test_freed_memory", **variable)
    assert status == 0, errors
    assert (int(output) < 1000) == keeps


if __name__ == "__main__":

    def faults():
        for _ in range(5):
            torch.ones(1 << 24)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    keep_freed_memory()
    before = faults()
    print(faults() - before)
