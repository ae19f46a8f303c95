"""Shared by all cases: tiny shards, the undisturbed runs, and the samples they consume."""

import random
from dataclasses import dataclass
from pathlib import Path

from data_prep.pipeline.build import build
from data_prep.settings import BuildSettings
from data_prep.shards.format import open_shards
from pretrain.config.recipe import load_settings
from pretrain.data.batches import Place, TrainingBatches
from tests.faults.run import Run
from tests.faults.sample_log import digests

STEPS, SAVE_EVERY = 16, 4
NEWEST, BEFORE = 3 * SAVE_EVERY, 2 * SAVE_EVERY  # checkpoints that are kept then
GLOBAL_SEQUENCES, ACCUMULATION = 12, 2
# At a rate that none of the other settings hides: every step moves the weights.
RUN = (
    *("--steps", STEPS, "--log_every_steps", 1, "--seed", 7),
    *("--evaluation.every_steps", 6, "--evaluation.rows", 24),
    *("--checkpoint.every_steps", SAVE_EVERY, "--checkpoint.keep_last", 2),
    *("--batch.global_sequences", GLOBAL_SEQUENCES, "--model.vocabulary_size", 256),
    *("--layer_drop.schedule", "progressive", "--layer_drop.theta_bar", 0.5),
)


@dataclass(frozen=True)
class Variant:
    """A run that has a reference of its own: its numbers depend on each of these."""

    zero_stage: int = 1
    world_size: int = 1
    is_elastic: bool = False  # nothing in it depends on the number of ranks but rounding

    @property
    def name(self) -> str:
        kind = "elastic" if self.is_elastic else "exact"
        return f"{kind}-zero{self.zero_stage}-ranks{self.world_size}"

    def words(self) -> list[str]:
        micro_sequences = GLOBAL_SEQUENCES // ACCUMULATION // self.world_size
        dropout, draw_per = 0.1, "micro_batch"
        if self.is_elastic:
            micro_sequences, dropout, draw_per = 2, 0.0, "step"
        words = (
            *("--engine.ds_config", f"zero{self.zero_stage}_fp32"),
            *("--batch.micro_sequences", micro_sequences),
            *("--model.dropout", dropout, "--layer_drop.draw_per", draw_per),
        )
        return [str(word) for word in words]


class Material:
    """The folder that the whole suite works in: shards, and undisturbed runs.

    `expected_samples` are those that each step must read: more than one epoch of the shards.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.shards = folder, folder / "shards"
        text = folder / "text.txt"
        text.write_text(synthetic_text(random.Random(0)))
        settings = BuildSettings(
            corpus=(str(text),),
            sequence_length=32,
            vocabulary_size=256,
            valid_fraction=0.1,
            deduplicate="none",
            rows_per_shard=64,
        )
        build(settings, self.shards)
        run = load_settings("tiny_cpu", self.words(Variant())[2:])
        batches = TrainingBatches(open_shards(self.shards), run, Place(GLOBAL_SEQUENCES, 0, 1))
        self.expected_samples = {step: digests(batches[step]) for step in range(STEPS)}

    def reference(self, variant: Variant) -> Path:
        """Return the folder of the undisturbed run; train it when it is asked for first."""
        run = Run(self, self.folder / variant.name, variant)
        if not run.is_finished:
            run.finish()
        return run.folder

    def words(self, variant: Variant) -> list[str]:
        """Return the command line of a run, but for its folder."""
        data = ("--data.shards", str(self.shards))
        return ["train", "tiny_cpu", *data, *map(str, RUN), *variant.words()]


def synthetic_text(generator: random.Random) -> str:
    """Return documents of random words: no row equals another one."""
    words = ["".join(generator.choices("abcdefghijklmnop", k=4)) for _ in range(60)]
    documents = [
        " ".join(" ".join(generator.choices(words, k=8)) + "." for _ in range(10))
        for _ in range(70)
    ]
    return "\n\n".join(documents) + "\n"
