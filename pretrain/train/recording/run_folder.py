"""The run folder: everything needed to reproduce, resume and compare a run.

run.json          the settings            ds_config.json   as DeepSpeed got it
identity          of the run, in each of its checkpoints too
tokenizer.json    of the shards           manifest.json    of the shards
launches.jsonl    one line per start
metrics.jsonl     training                evals.jsonl      held-out loss
events.*          TensorBoard             checkpoints/     complete or absent
result.json       written last: a folder without it holds an unfinished run; removed when a
                  finished run is lengthened
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, TextIO

from data_prep.files.atomic import append_whole, remove_cut_line, remove_strays, save_text
from data_prep.files.program import shell_command
from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import TOKENIZER_FILE, write_manifest
from pretrain.checkpoint.folders import keep_identity, write_records_through
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import (
    DS_CONFIG_FILE,
    LAUNCHES_FILE,
    RESULT_FILE,
    RUN_FILE,
    refuse_to_start,
)
from pretrain.config.settings import RunSettings, as_json
from pretrain.train.recording.metric_files import MetricFile
from pretrain.train.recording.progress import Counters
from pretrain.train.recording.provenance import environment
from pretrain.train.recording.scalars import scalars_of_evaluation, scalars_of_metrics
from pretrain.train.recording.tensorboard import Curves
from pretrain.train.recording.wandb_sync import WandbSync

REMEDIES = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make it writable"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (ulimit -n 4096)"),
}


class RunRecord:
    """The run folder of one launch. Only the first rank may call its methods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._metrics = MetricFile(folder / "metrics.jsonl")
        self._evaluations = MetricFile(folder / "evals.jsonl")
        self._files = (self._metrics, self._evaluations)
        self._curves: Curves | None = None
        self._wandb: WandbSync | None = None
        self._lock: TextIO | None = None

    def hold(self) -> None:
        """Keep other launches out of the folder for as long as this process lives.

        Raises:
            ConfigError: one is training in it, or it cannot be written.
        """
        try:
            self._lock = (self.folder / "lock").open("a")
        except OSError as error:
            raise self._cannot_be_written(error) from None
        try:
            # Of this process alone: its children could keep it after this one was killed.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):  # else there are no locks on this disk
                raise ConfigError(
                    f"another process is training in {self.folder} at this moment; stop it, or "
                    "choose another folder with --run-folder"
                ) from None
        remove_strays(self.folder)

    def settle(self) -> bool:
        """Write lines that are kept in memory; return whether all are written."""
        try:
            for file in self._files:
                file.settle()
        except OSError:
            return False
        return True

    def check_place(self) -> None:
        """Check that the folder is still the one that this launch holds.

        Raises:
            ConfigError: it was renamed or removed, or another one has its name.
        """
        assert self._lock is not None
        held, found = os.fstat(self._lock.fileno()), None
        with contextlib.suppress(OSError):
            found = (self.folder / "lock").stat()
        if found is None or not os.path.samestat(held, found):
            raise ConfigError(
                f"{self.folder} was renamed or removed while the run trained in it; give it back "
                f"its name and resume with {shell_command('train', self.folder, '--resume')}, or "
                f"resume where it is: {shell_command('train', 'FOLDER', '--resume')}"
            )

    def create(self, settings: RunSettings, ds_config: dict[str, Any], shards: ShardSet) -> None:
        """Write what describes the run.

        Raises:
            ConfigError: the folder cannot be written, or another launch has begun, or even ended,
                in it since it was checked.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.hold()
            refuse_to_start(self.folder)
            shutil.copyfile(shards.tokenizer_path, self.folder / TOKENIZER_FILE)
            write_manifest(self.folder, shards.manifest)
            self.describe(settings, ds_config)
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "choose another one with --run-folder")
            raise ConfigError(
                f"cannot write the run folder {self.folder}: {error.strerror}; {remedy}"
            ) from None

    def describe(self, settings: RunSettings, ds_config: dict[str, Any]) -> None:
        """Write the settings, when the run starts or resumes with others."""
        # A run that is lengthened is not finished any more.
        (self.folder / RESULT_FILE).unlink(missing_ok=True)
        save_text(self.folder / DS_CONFIG_FILE, json.dumps(ds_config, indent=1) + "\n")
        save_text(self.folder / RUN_FILE, as_json(settings))

    def begin(self, counters: Counters, launch: dict[str, Any], settings: RunSettings) -> None:
        """Record a launch; remove what an interrupted one wrote after the step where it starts.

        Raises:
            ConfigError: there is no room for it.
        """
        launches = self.folder / LAUNCHES_FILE
        try:
            keep_identity(self.folder)
            remove_cut_line(launches)
            line = {"at": time.strftime("%FT%T%z"), **launch, **environment()}
            append_whole(launches, json.dumps(line) + "\n")
            if "wandb" in settings.loggers:
                self._wandb = WandbSync(self.folder, settings)
            if settings.loggers:
                self._settings = settings
                self._curves = Curves(self.folder, settings)
            self.discard_after(counters.step or -1)  # step 0 is evaluated again
        except OSError as error:
            raise self._cannot_be_written(error) from None

    def discard_after(self, step: int) -> None:
        """Remove the lines that were written after `step`."""
        if self._curves is not None:
            self._curves.restart(step)
        for file in self._files:
            file.discard_after(step)

    def log(self, metrics: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl and TensorBoard."""
        self._metrics.append(metrics)
        if self._curves is not None and self.settle():  # on a full disk TensorBoard would fail
            self._curves.show(metrics["step"], scalars_of_metrics(metrics, self._settings))

    def log_evaluation(self, evaluation: dict[str, Any]) -> None:
        """Append a line to evals.jsonl and TensorBoard."""
        self._evaluations.append(evaluation)
        if self._curves is not None and self.settle():
            self._curves.show(evaluation["step"], scalars_of_evaluation(evaluation))

    def finish(self, result: dict[str, Any]) -> None:
        """Write result.json: the run is complete.

        Raises:
            ConfigError: there is no room for it, or for metrics kept in memory; or the folder is
                no longer there.
        """
        self.check_place()
        try:
            for file in self._files:
                file.settle()
            write_records_through(self.folder)
            save_text(self.folder / RESULT_FILE, json.dumps(result, indent=1) + "\n")
        except OSError as error:
            raise self._cannot_be_written(error) from None
        self.close()

    def close(self) -> None:
        """Close TensorBoard's file, and let W&B send the last points."""
        if self._curves is not None:
            self._curves.close()
        if self._wandb is not None:
            self._wandb.close()

    def _cannot_be_written(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self.folder} cannot be written ({error.strerror}); "
            f"{REMEDIES.get(error.errno or 0, 'free space')} and resume with "
            f"{shell_command('train', self.folder, '--resume')}"
        )
