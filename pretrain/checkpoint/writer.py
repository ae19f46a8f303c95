"""Writes checkpoints while training continues."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread, get_native_id
from typing import Any, TypeVar

import torch.distributed as distributed

from data_prep.files.progress_bar import warn
from pretrain.checkpoint.folders import (
    CHECKPOINTS,
    PARTIAL,
    checkpoint_folder,
    checkpoints_of,
    identity_of,
    kept,
    remove_remains,
    step_of,
    write_records_through,
)
from pretrain.checkpoint.format import Content, Snapshot, complete, remove, write_part
from pretrain.config.settings import CheckpointSettings
from pretrain.distributed.ranks import Ranks, from_all_ranks

Result = TypeVar("Result")


class Saver:
    """Saves the checkpoints of a run, one after the other.

    Training waits only while the state is copied to the host, and for a save that is unfinished
    when the next one is due. The ranks write in parallel; a checkpoint exists when all of them have
    written. If one cannot be written, the run continues and the older ones stay.
    """

    def __init__(
        self, run: Path, settings: CheckpointSettings, ranks: Ranks, *, newest: int | None = None
    ) -> None:
        """Remove what a killed launch left unfinished.

        All ranks must build a saver. This launch resumes from the checkpoint of step `newest`.
        """
        self._run, self._settings, self._ranks = run, settings, ranks
        # A group of its own: collectives of training run at the same time.
        self._group = distributed.new_group(backend="gloo") if ranks.world_size > 1 else None
        self._thread: Thread | None = None
        self._failure: BaseException | None = None
        self.newest = newest  # step of the newest checkpoint that this launch read or completed
        self.attempted = newest  # step of the last save, completed or failed
        if ranks.is_first:
            remove_remains(run)
            try:
                self._remove_old()  # on a full disk, a smaller keep_last makes room
            except OSError as error:
                _warn_of_old(_reason(error))

    def save(
        self, step: int, snapshot: Snapshot, progress: dict[str, Any], *, lacks_lines: bool = False
    ) -> None:
        """Begin to write a checkpoint, after the one before has completed or failed.

        `progress` are the counters of the first rank. The save fails if it `lacks_lines`: metrics
        up to the step could not be written.
        """
        self.wait()
        self.attempted, self._lacks_lines = step, lacks_lines
        self._thread = Thread(
            target=self._attempt, args=(step, snapshot, progress), name=f"checkpoint of step {step}"
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the save in progress has ended; raise its error, if it was a defect."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _attempt(self, step: int, snapshot: Snapshot, progress: dict[str, Any]) -> None:
        try:
            # On a CPU, training has priority over writing.
            os.setpriority(os.PRIO_PROCESS, get_native_id(), 19)
            self._write(step, snapshot, progress)
        except BaseException as failure:  # `wait` raises it in the thread of the caller
            self._failure = failure

    def _write(self, step: int, snapshot: Snapshot, progress: dict[str, Any]) -> None:
        partial = checkpoint_folder(self._run, step).with_suffix(PARTIAL)
        is_first, rank = self._ranks.is_first, self._ranks.rank
        try:
            self._together(lambda: _make_empty(partial) if is_first else None)
            parts = self._together(
                lambda: write_part(partial, rank, snapshot.tensors, snapshot.pieces)
            )
            content = Content(
                step=step,
                world_size=self._ranks.world_size,
                shapes=snapshot.shapes,
                optimizer_state={name: list(snapshot.state) for name in snapshot.shapes},
                parts={name: part for found in parts for name, part in found.items()},
                engine=snapshot.counters,
                progress=progress,
                run=self._together(lambda: identity_of(self._run)[0] if is_first else None)[0],
            )
            self._together(lambda: self._write_records_through() if is_first else None)
            self._together(lambda: complete(partial, content) if is_first else None)
        except NotWritten as failure:
            if is_first:
                shutil.rmtree(partial, ignore_errors=True)
                self._warn(step, str(failure))
            return
        self.newest = step
        try:
            self._together(lambda: self._remove_old() if is_first else None)
        except NotWritten as failure:
            if is_first:
                _warn_of_old(str(failure))

    def _write_records_through(self) -> None:
        if self._lacks_lines:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_records_through(self._run)

    def _together(self, action: Callable[[], Result]) -> list[Result]:
        """Let every rank act and return all results; a failure is raised on all ranks.

        Raises:
            NotWritten: the operating system refused it on some rank.
        """
        outcome: tuple[Any, str | None]
        try:
            outcome = action(), None
        except OSError as error:
            outcome = None, _reason(error)
        outcomes = from_all_ranks(outcome, self._ranks, group=self._group)
        for _, complaint in outcomes:
            if complaint is not None:
                raise NotWritten(complaint)
        return [result for result, _ in outcomes]

    def _warn(self, step: int, reason: str) -> None:
        found = checkpoints_of(self._run)
        good = f"the newest good one is of step {step_of(found[-1])}" if found else "there is none"
        warn(
            f"the checkpoint of step {step} could not be written to {self._run / CHECKPOINTS} "
            f"({reason}); {good}; free space for the next"
        )

    def _remove_old(self) -> None:
        found = {step_of(folder): folder for folder in checkpoints_of(self._run)}
        stays = kept(found, keep_last=self._settings.keep_last, pinned=self._settings.pinned)
        for step in found.keys() - stays:
            remove(found[step])


class NotWritten(Exception):
    """The operating system refused to write or to remove a checkpoint, on some rank."""


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)  # not the folder of the run, which may have been renamed
    folder.mkdir()


def _warn_of_old(reason: str) -> None:
    warn(f"an old checkpoint cannot be removed ({reason})")


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk"
    return error.strerror or str(error)
