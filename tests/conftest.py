import os

import torch

os.environ["TUPELO_COMMAND"] = "tupelo"  # what hints begin with, in every environment
torch.set_num_threads(1)  # tiny tensors: more threads only fight each other

# Triton reads this when it sees a kernel: without a GPU, kernels then run in Python.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items):
    for item in items:
        for mark in item.iter_markers("slow"):
            assert mark.args, f"{item.nodeid}: slow needs a reason"
