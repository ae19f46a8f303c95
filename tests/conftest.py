import os

import hypothesis
import pytest
import torch

# Asking for GPUs must not start CUDA, which does not survive the forks of tests.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
os.environ["TUPELO_COMMAND"] = "tupelo"  # what hints begin with, in every environment
# Machines are shared: how long one example takes says nothing.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")
torch.set_num_threads(1)  # tiny tensors: more threads only fight each other

# Triton reads this when it sees a kernel: without a GPU, kernels then run in Python.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def no_launcher():
    """Remove what accelerate sets in this process, and what later programs would take for true."""
    yield
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)


def pytest_collection_modifyitems(items):
    for item in items:
        for mark in item.iter_markers("slow"):
            assert mark.args, f"{item.nodeid}: slow needs a reason"
