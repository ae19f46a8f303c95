"""What a command answers before torch is imported, which takes seconds."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SLOW = {"torch", "deepspeed", "matplotlib", "sklearn", "transformers"}

# Prints for each command whether it said something, and which slow packages were imported.
PROGRAM = f"""
import contextlib, io, json, sys
from data_prep.files.errors import UserError
from tupelo.__main__ import main

for line in sys.argv[1:]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(line.split())
        except (SystemExit, UserError) as error:
            said.write(str(error))
    print(line, bool(said.getvalue()), sorted({SLOW!r} & sys.modules.keys()), sep="; ")
"""

# Prints a line when torch begins to be imported, and ends there.
UNTIL_TORCH = """
import runpy, sys

class Torch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("TORCH", flush=True)
            sys.exit(3)

sys.meta_path.insert(0, Torch())
runpy.run_module("tupelo", run_name="__main__", alter_sys=True)
"""


def run(program, *words):
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_help_lists_and_refused_words_and_files_need_no_torch():
    commands = [
        *("--help", "recipes", "train --help", "train tupe_r --help", "train", "train tupe_s"),
        *("train tupe_r --model.num_layer 3", "train tupe_r --model.num_layers three"),
        *(
            "prepare --help",
            "train tiny_cpu --dry-run --measure 0",
            "profile tiny_cpu --steps none",
        ),
        *("compare --help", "analyse --help", "analyse gradient runs/x", "export --help"),
        *("import --help", "fill-mask --help", "data build --help", "train tupe_r --corpus absent"),
        *("finetune run x --seed 1", "finetune run x --train absent.csv --to absent"),
        *("finetune predict absent", "finetune table absent"),
    ]
    answer = run(PROGRAM, *commands)
    assert answer.stdout.splitlines() == [f"{line}; True; []" for line in commands], answer.stderr


def test_a_start_says_what_it_does_before_torch_is_imported(tmp_path, shards):
    data = ("--data.shards", str(shards), "--model.vocabulary_size", "256")
    answer = run(UNTIL_TORCH, "train", "tiny_cpu", "--run-folder", str(tmp_path), *data)
    lines = answer.stdout.splitlines()
    assert lines[0] == (
        f"tiny_cpu: 2 layers x 32, tupe-r, pre norm; 20 steps; run folder {tmp_path}"
    )
    assert lines[1].startswith(f"shards in {shards}: train ") and lines[2:] == ["TORCH"]


def test_a_folder_that_holds_something_is_refused_before_torch_is_imported(tmp_path):
    (tmp_path / "cat.jpeg").write_bytes(b"cat")
    answer = run(UNTIL_TORCH, "train", "tupe_r", "--run-folder", str(tmp_path))
    assert answer.returncode == 1 and "TORCH" not in answer.stdout
    assert "holds cat.jpeg" in answer.stderr
