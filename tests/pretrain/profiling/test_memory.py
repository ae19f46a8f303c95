import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
import torch
from pretrain.profiling.hardware import peak_memory_bytes
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from pretrain.config.recipe import load_settings
model = MaskedLanguageModel(load_settings("tiny_cpu", sys.argv[1:]).model)
print(sum(p.numel() for p in model.parameters()), peak_memory_bytes("cpu"))
"""


def parameters_and_memory(*words):
    command = [sys.executable, "-c", PROGRAM, *words]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return map(int, finished.stdout.split())


def test_a_process_does_not_begin_with_the_mark_of_the_one_that_started_it():
    large = bytearray(2**30)
    large[::4096] = b"x" * len(large[::4096])  # touch every page
    _, memory = parameters_and_memory()
    assert 50e6 < memory < len(large)
