"""The checkpoints of a run: which there are, which of them is good, which stay."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from pretrain.checkpoint.format import REMOVED, Checkpoint, CheckpointError
from pretrain.config.errors import ConfigError

CHECKPOINTS = "checkpoints"
PARTIAL, DAMAGED = ".partial", ".damaged"


def checkpoints_of(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run folder, oldest first; they can still be damaged."""
    return sorted((run / CHECKPOINTS).glob(f"step_{8 * '[0-9]'}"))


def checkpoint_folder(run: Path, step: int) -> Path:
    """Return where the checkpoint after `step` optimizer steps will be."""
    return run / CHECKPOINTS / f"step_{step:08d}"


def step_of(folder: Path) -> int:
    """Return after how many optimizer steps a checkpoint was written."""
    return int(folder.name.removeprefix("step_"))


def newest_checkpoint(run: Path) -> Path:
    """Return the newest complete checkpoint of a run folder.

    Raises:
        ConfigError: the folder holds no run, or a run without a checkpoint.
    """
    if not (run / "run.json").is_file():
        raise ConfigError(f"{run} is not a run folder: it has no run.json")
    found = checkpoints_of(run)
    if not found:
        raise ConfigError(f"{run} has no checkpoint yet; let the run reach its first one")
    return found[-1]


def newest_sound_checkpoint(run: Path) -> tuple[Path | None, list[CheckpointError]]:
    """Return the newest checkpoint whose files are what was written, None if there is none at all.

    Newer ones that are damaged are renamed, so that nobody takes them for good again; the errors
    tell which.

    Raises:
        CheckpointError: there are checkpoints, and all of them are damaged.
    """
    complaints: list[CheckpointError] = []
    found = checkpoints_of(run)
    for folder in reversed(found):
        try:
            Checkpoint(folder).verify()
        except CheckpointError as error:
            complaints.append(error)
            continue
        for damaged in found[found.index(folder) + 1 :]:
            aside = damaged.with_suffix(DAMAGED)
            shutil.rmtree(aside, ignore_errors=True)
            damaged.rename(aside)
        return folder, complaints
    if complaints:
        raise CheckpointError(
            f"{run} has no sound checkpoint: {'; '.join(map(str, complaints))}; "
            "bring back one of them, or start a new run"
        )
    return None, []


def kept(
    steps: Iterable[int], *, keep_last: int | None, keep_every: int | None, pinned: Iterable[int]
) -> set[int]:
    """Return which checkpoints stay: the last ones, every n-th, and those that are pinned."""
    ordered = sorted(steps)
    if keep_last is None:
        return set(ordered)
    stays = set(ordered[-keep_last:]) | set(pinned)
    if keep_every is not None:
        stays |= {step for step in ordered if step % keep_every == 0}
    return stays & set(ordered)


def remove_remains(run: Path) -> None:
    """Remove what a launch that was killed left half written or half removed."""
    for suffix in (PARTIAL, REMOVED):
        for folder in (run / CHECKPOINTS).glob(f"step_????????{suffix}"):
            shutil.rmtree(folder, ignore_errors=True)
