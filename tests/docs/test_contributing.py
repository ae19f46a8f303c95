"""The additions that CONTRIBUTING.md describes work as they stand there."""

import shutil
import subprocess
import sys

import pytest
from transformers import AutoModelForMaskedLM

from tests.docs.contributed import BLOCKS
from tests.forked_command import environment, run_module
from tests.pretrain.conftest import ROOT, command, lines, shards

__all__ = ["command", "shards"]  # fixtures
TRAINED = {
    "pretrain/model/positions": ("--model.positions", "kerple"),
    "pretrain/schedules/layer_drop": ("--layer_drop.schedule", "cosine"),
    "pretrain/engine/optimizers": ("--optimizer.kind", "rmsprop"),
    "pretrain/model/objectives/catalog": ("--objective", "smoothed"),
}
SUITE = "finetune/tasks/catalog"
FIELDS = """
    kerple_factor: float = Field(1.0, gt=0, description="multiplies KERPLE's bias")
    kerple_reach: float = Field(100.0, gt=0, description="largest size of KERPLE's bias")


class ModelSettings("""
WITH_SETTINGS = """
class LimitedBias(LogarithmicBias):
    own_settings = ("kerple_factor", "kerple_reach")

    def __init__(self, settings):
        super().__init__(settings)
        self.factor, self.reach = settings.kerple_factor, settings.kerple_reach

    def tables(self):
        return {"relative_rate": [self.logarithms.weight]}

    def attention_bias(self, sequence_length):
        return self.factor * super().attention_bias(sequence_length).clamp(min=-self.reach)


POSITION_ENCODINGS["limited"] = LimitedBias
"""
# Each command in a fork that has imported what takes seconds; the last compares logits.
COMMANDS = """
import os, shutil, sys
from pathlib import Path
from pretrain.__main__ import main
from pretrain.distributed.deepspeed_library import import_deepspeed
import pretrain.convert.exports.export, pretrain.train.start

def fork(*words):
    if not (child := os.fork()):
        main(list(words))
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

import_deepspeed()
folder, exported, *words = sys.argv[1:]
fork(*words)
shutil.copytree(folder, Path(folder).with_name("whole"))
Path(folder, "result.json").unlink()
shutil.rmtree(Path(folder, "checkpoints/step_00000020"))
fork("train", folder, "--resume")
fork("export", folder, "--to", exported)
"""


def run(files, package, *words):
    words = [",".join(files), package, *words]
    status, output, errors = run_module("tests.docs.contributed", words)
    assert status == 0, errors[-3000:]
    return output


def test_every_addition_is_tried():
    assert set(BLOCKS) == {*TRAINED, SUITE}


def test_what_is_added_trains_and_resumes(command, tmp_path):
    folder, added = tmp_path / "run", [word for words in TRAINED.values() for word in words]
    words = command.words("--engine.ds_config", "zero2_fp32", *added, "--run-folder", folder)
    run(TRAINED, "pretrain", *words)
    evaluations = lines(folder, "evals.jsonl")
    assert evaluations[-1]["step"] == 20
    (folder / "result.json").unlink()
    for checkpoint in (folder / "checkpoints").glob("step_*20"):
        checkpoint.rename(tmp_path / "later")
    run(TRAINED, "pretrain", "train", folder, "--resume")
    assert lines(folder, "evals.jsonl") == evaluations


def test_a_suite_that_is_added_has_an_option():
    assert "--superglue" in run([SUITE], "finetune", "run", "--help")


@pytest.mark.slow("starts a copy of the program")
def test_settings_of_an_encoding_are_set_trained_resumed_exported_and_loaded(command, tmp_path):
    checkout, folder, exported = (tmp_path / name for name in ("checkout", "run", "exported"))
    shutil.copytree(ROOT / "pretrain", checkout / "pretrain")
    for name in ("data_prep", "finetune", "tupelo", "ds_configs"):
        (checkout / name).symlink_to(ROOT / name)
    file = checkout / "pretrain/config/settings/model.py"
    file.write_text(file.read_text().replace("\n\nclass ModelSettings(", FIELDS))
    with (checkout / "pretrain/model/positions.py").open("a") as positions:
        positions.write(BLOCKS["pretrain/model/positions"] + WITH_SETTINGS)

    own = ("--model.kerple_factor=1.5", "--model.kerple_reach=0.8", "--optimizer.relative_rate=4")
    words = ("--model.positions=limited", "--layer_drop.schedule=progressive", *own)
    started = [sys.executable, "-c", COMMANDS, str(folder), str(exported)]
    subprocess.run(
        [*started, *map(str, command.words(*words, "--run-folder", folder))],
        cwd=checkout,
        env=environment(PYTHONPATH=str(checkout)),
        check=True,
    )
    assert lines(folder, "evals.jsonl") == lines(tmp_path / "whole", "evals.jsonl")
    model = AutoModelForMaskedLM.from_pretrained(exported, trust_remote_code=True)
    assert float(model.encoder.positions.attention_bias(32).min()) == pytest.approx(-1.5 * 0.8)
