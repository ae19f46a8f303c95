"""Shards that were damaged: before a run, and while it was down."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.faults.case import Bench, Case
from tests.faults.material import Variant
from tests.faults.outcome import NotSurvivedError
from tests.faults.run import Run

from .damaged_checkpoints import check_one_clear_line, copy_of, stopped_run, truncate

DAMAGES: dict[str, Callable[[Path], None]] = {"truncated": truncate, "missing": Path.unlink}


def cases() -> list[Case]:
    """Return each damage to a file of rows."""
    variant = Variant()
    return [
        Case("shards", "at the start", len(DAMAGES), (variant,), _refuse_to_start),
        Case("shards", "at a resume", len(DAMAGES), (variant,), _refuse_to_resume),
    ]


def _refuse_to_start(bench: Bench) -> None:
    for name, damage in DAMAGES.items():
        with bench.faults(name):
            shards = bench.place / name
            victim = _damaged_copy(bench, shards, damage)
            run = Run(bench.material, bench.place / f"run {name}", Variant(), shards=shards)
            launch = run.start()
            check_one_clear_line(launch.wait(), launch.output, victim.name)
            if run.folder.exists():
                raise NotSurvivedError("a run folder was left behind")


def _refuse_to_resume(bench: Bench) -> None:
    """Refuse while the shards are damaged, and continue when they are restored."""
    shards = bench.place / "shards"
    shutil.copytree(bench.material.shards, shards)
    stopped = stopped_run(bench, Variant(), shards=shards)
    for name, damage in DAMAGES.items():
        run = copy_of(stopped, bench.place / name)
        with bench.faults(name):
            victim = _victim(shards)
            content = victim.read_bytes()
            damage(victim)
            launch = run.start()
            check_one_clear_line(launch.wait(), launch.output, victim.name)
            victim.write_bytes(content)
            run.finish()
            bench.judge(run)


def _damaged_copy(bench: Bench, shards: Path, damage: Callable[[Path], None]) -> Path:
    shutil.copytree(bench.material.shards, shards)
    victim = _victim(shards)
    damage(victim)
    return victim


def _victim(shards: Path) -> Path:
    return sorted(shards.glob("train-*.h5"))[1]
