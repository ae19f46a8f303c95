"""The TensorBoard files of a run; a full disk does not stop training.

They hold curves, the settings as a table, and the settings as hyperparameters beside the held-out
loss, for TensorBoard's pages Scalars, Text and HParams.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from pretrain.checkpoint.changes import FREE
from pretrain.config.settings import RunSettings, flat
from pretrain.train.recording.metric_files import warn_of_waiting
from pretrain.train.recording.scalars import HELD_OUT_LOSS

Write = Callable[[SummaryWriter], None]


class Curves:
    """The TensorBoard files of a launch; what could not be written comes with the next point."""

    def __init__(self, folder: Path, settings: RunSettings) -> None:
        """Prepare; `restart` begins the first file."""
        self._folder, self._settings = folder, settings
        self._waiting: list[Write] = []
        self._writer: SummaryWriter | None = None
        _silence_writers()

    def restart(self, step: int) -> None:
        """Begin a file whose points replace those after `step` in older ones."""
        self.close()
        self._writer, self._first_step = None, step + 1
        self._waiting = [lambda writer: _describe(writer, self._settings, step)]

    def show(self, step: int, scalars: dict[str, float]) -> None:
        """Add the points of a step."""

        def write(writer: SummaryWriter) -> None:
            for name, value in scalars.items():
                writer.add_scalar(name, value, step)

        if self._write(write):
            self._first_step = step + 1

    def finish(self) -> None:
        """Record that the run is complete."""
        *_, end = _hyperparameters({})
        self._write(lambda writer: _add(writer, end))

    def close(self) -> None:
        """Close the file; everything in it has been flushed."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, write: Write) -> bool:
        """Write this and what could not be written before; return whether that succeeded."""
        self._waiting.append(write)
        try:
            if self._writer is None:
                self._writer = SummaryWriter(str(self._folder), purge_step=self._first_step)
            for waiting in self._waiting:
                waiting(self._writer)
            self._writer.flush()
        except OSError as error:
            if self._writer is not None:
                warn_of_waiting(self._folder / "events.*", error)
            self._writer = None  # what it had buffered is lost
            return False
        self._waiting.clear()
        return True


def _describe(writer: SummaryWriter, settings: RunSettings, step: int) -> None:
    values = flat(settings.model_dump(mode="json"))
    rows = "".join(f"| {name} | {_text(value)} |\n" for name, value in values.items())
    writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", step)
    experiment, start, _ = _hyperparameters(values)
    _add(writer, experiment)
    _add(writer, start)


def _hyperparameters(values: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the summaries that describe, begin and end a run; HParams shows its last loss.

    HParams cannot sort values of two types: what is a number by default is one or left out, the
    rest is text.
    """
    defaults = flat(RunSettings().model_dump(mode="json"))
    typed: dict[str, float | str] = {}
    for name, value in values.items():
        if name.startswith(FREE):  # changes no number of the run
            continue
        if type(defaults[name]) not in (int, float):
            typed[name] = _text(value)
        elif value is not None:
            typed[name] = value
    compute: Callable[..., tuple[Any, Any, Any]] = hparams
    return compute(typed, {HELD_OUT_LOSS: 0.0})


def _text(value: Any) -> str:
    if value in (None, []):
        return "none"
    words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    words = words.lower() if isinstance(value, bool) else words
    return words.replace("|", "\\|").replace("\n", " ")


def _add(writer: SummaryWriter, summary: Any) -> None:
    file_writer: Any = writer.file_writer
    file_writer.add_summary(summary)


def _silence_writers() -> None:
    """Do not print errors of TensorBoard's thread: they are raised again in ours."""
    report = threading.excepthook

    def quietly(details: "threading.ExceptHookArgs") -> None:
        if not issubclass(details.exc_type, OSError):
            report(details)

    threading.excepthook = quietly
