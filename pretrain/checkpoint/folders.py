"""The checkpoints of a run: list them, find the newest sound one, choose which are kept."""

import contextlib
import hashlib
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

from data_prep.files.atomic import save_text, write_through
from pretrain.checkpoint.format import REMOVED, Checkpoint, CheckpointError, remove_tree
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import LAUNCHES_FILE, RUN_FILE, hint_at_runs

CHECKPOINTS = "checkpoints"
IDENTITY_FILE = "identity"
PARTIAL, DAMAGED = ".partial", ".damaged"


def checkpoints_of(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run folder, oldest first; their files are not read."""
    return sorted((run / CHECKPOINTS).glob(f"step_{8 * '[0-9]'}"))


def identity_of(run: Path) -> tuple[str | None, Path]:
    """Return what distinguishes a run from others of its name, and the file that holds it.

    It survives resumes, copies and moves of the folder. Of a run without that file, it is a digest
    of the record of its first launch; None: nor is that there.
    """
    file, launches = run / IDENTITY_FILE, run / LAUNCHES_FILE
    if file.is_file():
        return file.read_text(errors="replace").strip(), file
    first = launches.read_bytes().partition(b"\n")[0] if launches.is_file() else b""
    return hashlib.sha256(first).hexdigest()[:16] if first else None, launches


def keep_identity(run: Path) -> None:
    """Write the identity of a run into a file of its own, if it has none; a new run gets one."""
    if not (run / IDENTITY_FILE).is_file():
        save_text(run / IDENTITY_FILE, f"{identity_of(run)[0] or uuid.uuid4().hex[:16]}\n")


def write_records_through(run: Path) -> None:
    """Wait until settings, launches, metrics and tokenizer of a run have reached the disk."""
    for place in (*run.glob("*.json*"), run):
        write_through(place)


def checkpoint_folder(run: Path, step: int) -> Path:
    """Return the folder of the checkpoint after `step` optimizer steps."""
    return run / CHECKPOINTS / f"step_{step:08d}"


def step_of(folder: Path) -> int:
    """Return after how many optimizer steps a checkpoint was written."""
    return int(folder.name.removeprefix("step_"))


def newest_checkpoint(run: Path) -> Path:
    """Return the newest complete checkpoint of a run folder.

    Raises:
        ConfigError: the folder holds no run, or a run without a checkpoint.
    """
    if not (run / RUN_FILE).is_file():
        raise ConfigError(f"{run} is not a run folder: it has no run.json{hint_at_runs(run)}")
    found = checkpoints_of(run)
    if not found:
        raise ConfigError(f"{run} has no checkpoint yet; let the run reach its first one")
    return found[-1]


def newest_sound_checkpoint(run: Path) -> Path | None:
    """Return the newest undamaged checkpoint of a run; None: it has no checkpoint.

    Newer ones that are damaged, or were written by another run, are reported and renamed, so that
    they are not read again.

    Raises:
        CheckpointError: there are checkpoints, and all of them are damaged.
    """
    complaints: list[CheckpointError] = []
    found, (identity, holder), strangers = checkpoints_of(run), identity_of(run), 0
    for folder in reversed(found):
        try:
            checkpoint = Checkpoint(folder)
            if identity is not None and checkpoint.content.run not in (None, identity):
                strangers += 1
                raise CheckpointError(
                    f"{folder} was written by another run, {checkpoint.content.run}, than the "
                    f"{identity} of {holder}"
                )
            checkpoint.verify()
        except CheckpointError as error:
            complaints.append(error)
            continue
        for damaged, complaint in zip(reversed(found), complaints, strict=False):
            aside = damaged.with_suffix(DAMAGED)
            remove_tree(aside)
            damaged.rename(aside)
            print(
                f"warning: {complaint}; it was renamed to {aside.name}, and the run resumes from "
                f"{folder}",
                file=sys.stderr,
            )
        return folder
    if complaints:
        wrong = holder if strangers == len(found) else "one of them"
        raise CheckpointError(
            f"{run} has no sound checkpoint: {'; '.join(map(str, complaints))}; "
            f"restore {wrong} from a copy, or start a new run"
        )
    return None


def kept(steps: Iterable[int], *, keep_last: int | None, pinned: Iterable[int]) -> set[int]:
    """Return which checkpoints are kept: the last ones (None: all), and the pinned ones."""
    ordered = sorted(steps)
    return set(ordered if keep_last is None else ordered[-keep_last:]) | set(ordered) & set(pinned)


def remove_remains(run: Path) -> None:
    """Remove what a killed launch left partly written or partly removed."""
    for suffix in (PARTIAL, REMOVED):
        for folder in (run / CHECKPOINTS).glob(f"step_????????{suffix}"):
            with contextlib.suppress(OSError):  # a later launch tries again
                remove_tree(folder)
