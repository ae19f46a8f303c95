"""The samples that a run has consumed: a log that a wrapped trainer writes, and its counts.

A line is written when an optimizer step has been taken, with a digest of each row as the model
gets it (ids after masking, places and labels of the predictions). A row with the masks of another
epoch is another sample. The log is only ever appended to, by one file for each launch and
rank; what of it counts is decided afterwards: a launch counts up to the step at which the next
launch resumed.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy


@dataclass(frozen=True)
class Consumed:
    """What one launch has consumed."""

    first_step: int | None  # None: it ended before its first step
    samples: dict[int, list[str]]  # of each finished step, in the order of their global numbers


@dataclass(frozen=True)
class Count:
    """The samples behind the final weights against those that should be behind them."""

    lost: int
    repeated: int
    misplaced: int  # steps whose samples are not those of the step, or in another order

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.repeated or self.misplaced)


def digests(batch: Any) -> list[str]:
    """Return a digest of each row of a MaskedBatch, wherever it lies in the batch."""
    rows, length = batch.ids_BS.shape
    starts = numpy.arange(rows)[:, None] * length
    positions = batch.positions_M.numpy().reshape(rows, -1) - starts
    labels = batch.labels_M.numpy().reshape(rows, -1)
    parts = zip(batch.ids_BS.numpy(), positions, labels, strict=True)
    return [
        hashlib.blake2b(
            b"|".join(part.astype(numpy.int64).tobytes() for part in row), digest_size=8
        ).hexdigest()
        for row in parts
    ]


def log_samples(file: Path, before_step: Callable[[int], None]) -> None:
    """Make this process log what its trainer consumes, and call `before_step` in it."""
    from pretrain.engine.engine import Engine
    from pretrain.train.trainer import Trainer

    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    train, train_step = Trainer.train, Engine.train_step
    progress: list[Any] = []

    def write(record: dict[str, Any]) -> None:
        os.write(log, (json.dumps(record) + "\n").encode())

    def logged_train(self: Any) -> None:
        progress[:] = [self.progress]
        write({"first_step": self.progress.step})
        train(self)

    def logged_step(self: Any, micro_batches: Any, *arguments: Any, **options: Any) -> Any:
        step, taken = progress[0].step, []
        before_step(step)

        def watched() -> Any:
            for item in micro_batches:
                taken.append(digests(item[0]))
                yield item

        result = train_step(self, watched(), *arguments, **options)
        write({"step": step, "micro_batches": taken})
        return result

    Trainer.train, Engine.train_step = logged_train, logged_step


def read_launch(files: list[Path]) -> Consumed:
    """Read the logs of the ranks of one launch, in the order of the ranks."""
    if not files:
        return Consumed(None, {})
    ranks = [_read(file) for file in files]
    first_step = ranks[0][0]
    common = set.intersection(*(set(steps) for _, steps in ranks))
    samples = {}
    for step in sorted(common):
        by_rank = [steps[step] for _, steps in ranks]
        # Ranks take turns, a micro-batch each.
        turns = [part for turn in zip(*by_rank, strict=True) for part in turn]
        samples[step] = [sample for part in turns for sample in part]
    return Consumed(first_step, samples)


def behind_the_weights(launches: list[Consumed]) -> dict[int, list[str]]:
    """Return the samples of the steps that count: of each launch those before the next resumed."""
    counted: dict[int, list[str]] = {}
    for launch in launches:
        if launch.first_step is None:
            continue
        kept = {step: found for step, found in counted.items() if step < launch.first_step}
        counted = kept | launch.samples
    return counted


def count_samples(expected: list[list[str]], found: dict[int, list[str]]) -> Count:
    """Count samples that are missing, samples that are there too often, and wrong steps."""
    wanted = Counter(sample for step in expected for sample in step)
    seen = Counter(sample for step in found.values() for sample in step)
    steps = set(range(len(expected))) | set(found)
    misplaced = sum(
        found.get(step) != (expected[step] if step < len(expected) else None) for step in steps
    )
    return Count((wanted - seen).total(), (seen - wanted).total(), misplaced)


def _read(file: Path) -> tuple[int | None, dict[int, list[list[str]]]]:
    first_step, steps = None, {}
    for line in file.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # the kill cut it short
        record = json.loads(line)
        if "first_step" in record:
            first_step = record["first_step"]
        else:
            steps[record["step"]] = record["micro_batches"]
    return first_step, steps
