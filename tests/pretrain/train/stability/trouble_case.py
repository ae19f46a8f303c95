"""Runs to which something happens, in one process or under torchrun.

    trouble_case.py SHARDS FOLDER SCENARIO ...

Each scenario trains in FOLDER/SCENARIO and writes FOLDER/SCENARIO.json: the rows of every step
that the engine took, and how the run ended.
"""

import contextlib
import json
import sys
from pathlib import Path

import torch
from deepspeed.accelerator import get_accelerator

from pretrain.config.ds_config import fill_ds_config, read_ds_config
from pretrain.config.errors import AnomalyError, ConfigError
from pretrain.config.recipe import load_settings
from pretrain.distributed.ranks import start_ranks, stop_ranks
from pretrain.distributed.signals import Interruption
from pretrain.engine.engine import Engine
from pretrain.train import start, trainer
from pretrain.train.request import RunRequest
from pretrain.train.stability import detector, monitor

LOSSES = {"large loss": 1e9, "nan loss": float("nan")}
WEIGHT = "encoder.blocks.1.feedforward.inner.weight"
REWIND = ("--trouble.on_not_finite", "rewind")
FULL_DEPTH = ("--layer_drop.schedule", "none", "--layer_drop.theta_bar", "0.5")

# name -> (DeepSpeed configuration, what happens, at which steps, settings)
SCENARIOS = {
    "plain": ("zero1_fp32", None, (), ()),
    "rewind": ("zero1_fp32", "weight", (13,), REWIND),
    "before_a_checkpoint": ("zero1_fp32", "weight", (2,), REWIND),
    "skip": ("zero1_fp32", "nan loss", (13,), ("--trouble.on_not_finite", "skip")),
    "stop": ("zero1_fp32", "weight", (13,), ()),
    "persists": ("zero1_fp32", "weight", range(13, 21), REWIND),
    "at_a_save": ("zero0_fp32", "late weight", (15,), ()),
    "renamed": ("zero1_fp32", "rename", (13,), ()),
    "half_streak": ("zero1_fp16", "large loss", range(12, 21), ()),
    "spike_rewind": ("zero1_fp32", "large weights", (18,), ("--trouble.on_spike", "rewind")),
}
# On two ranks.
REWINDS = {
    "rewind_zero2": ("zero2_bf16", "weight", (13,), REWIND),
    "rewind_zero3": ("zero3_fp32", "weight", (13,), (*REWIND, *FULL_DEPTH)),
}


def words(shards):
    return [
        *("--data.shards", str(shards), "--log_every_steps", "1", "--checkpoint.every_steps", "5"),
        *("--model.dropout", "0.1", "--layer_drop.schedule", "progressive"),
        *("--layer_drop.theta_bar", "0.9", "--batch.micro_sequences", "4"),
    ]


def harm(engine, what):
    if what == "weight":
        weight = dict(engine._engine.module.named_parameters())[WEIGHT]
        with torch.no_grad():
            # ZeRO-3 keeps a part of it, and the whole too while it is small.
            if hasattr(weight, "ds_tensor"):
                weight.ds_tensor.view(-1)[3] = float("inf")
            if weight.numel():
                weight.view(-1)[3] = float("inf")
    elif what == "large weights":
        with torch.no_grad():
            for master in engine._optimizer.single_partition_of_fp32_groups:
                master *= 30


@contextlib.contextmanager
def harmed_loss(engine, what):
    """Multiply the losses of a step."""
    module = engine._engine.module
    if what in LOSSES:
        module.forward = lambda *inputs: LOSSES[what] * type(module).forward(module, *inputs)
    yield
    vars(module).pop("forward", None)


def train_with(scenario, shards, folder, ranks, *extra, resume=False):
    """Train, with harm done just before the step is taken; return how it ended and the rows."""
    config_name, what, steps, settings_words = {**SCENARIOS, **REWINDS}[scenario]
    settings = load_settings("tiny_cpu", [*words(shards), *settings_words, *extra])
    config = fill_ds_config(
        read_ds_config(config_name, "cpu"), settings, world_size=ranks.world_size
    )
    taken, take_step, train_step = [], trainer.Trainer._take_step, Engine.train_step

    def harmed(self, plan, batches):
        taken.append([plan.step, []])
        if plan.step in steps:
            harm(self.engine, what)
        with harmed_loss(self.engine, what if plan.step in steps else None):
            take_step(self, plan, batches)
        if plan.step in steps and what == "rename":
            folder.rename(folder.with_name("elsewhere"))
        if plan.step in steps and what == "late weight":
            harm(self.engine, "weight")

    def noted(self, micro_batches, learning_rate):
        chosen = list(micro_batches)
        taken[-1][1] = [batch.ids_BS.tolist() for batch, _ in chosen]
        return train_step(self, chosen, learning_rate)

    ended = "finished"
    trainer.Trainer._take_step, Engine.train_step = harmed, noted
    try:
        with Interruption(prints=ranks.is_first) as interruption:
            request = RunRequest(settings, folder, "resume" if resume else "start")
            start.run(request, config, ranks, interruption)
    except (AnomalyError, ConfigError, SystemExit) as error:
        ended = str(error)
    finally:
        trainer.Trainer._take_step, Engine.train_step = take_step, train_step
    return {"ended": ended, "taken": taken}


def main(shards, folder, *scenarios):
    get_accelerator().is_fp16_supported = lambda: True  # slow on a CPU, but the same code path
    detector.STREAK, detector.LEAST_LOSSES, monitor.MOST_REWINDS = 6, 10, 2
    ranks = start_ranks()
    for scenario in scenarios:
        found = [train_with(scenario, shards, Path(folder) / scenario, ranks)]
        if scenario == "stop":
            found.append(
                train_with(scenario, shards, Path(folder) / scenario, ranks, *REWIND, resume=True)
            )
        if ranks.is_first:
            (Path(folder) / f"{scenario}.json").write_text(json.dumps(found))
    stop_ranks()


if __name__ == "__main__":
    main(*sys.argv[1:])
