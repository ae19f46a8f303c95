"""The TensorBoard files of a run, curves and a table of the settings; a full disk stops nothing."""

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from pretrain.config.settings import RunSettings, flat
from pretrain.train.recording.metric_files import warn_of_full


class Curves:
    """The TensorBoard files of a launch; points that cannot be written are in metrics.jsonl."""

    def __init__(self, folder: Path, settings: RunSettings) -> None:
        """Prepare; `restart` begins the first file."""
        self._folder, self._settings = folder, settings
        self._writer: SummaryWriter | None = None
        self._is_full = False

    def restart(self, step: int) -> None:
        """Begin a file whose points replace those after `step` in older ones."""
        self.close()
        self._writer, self._first_step = None, step + 1

    def show(self, step: int, scalars: dict[str, float]) -> None:
        """Add the points of a step."""
        try:
            if self._writer is None:
                self._folder.stat()  # the writer would make one that was renamed anew
                self._writer = SummaryWriter(str(self._folder), purge_step=self._first_step)
                values = flat(self._settings.model_dump(mode="json"))
                rows = (f"| {name} | {value} |" for name, value in values.items())
                table = "\n".join(["| setting | value |", "|---|---|", *rows])
                self._writer.add_text("settings", table, step)
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()
            self._first_step, self._is_full = step + 1, False
        except OSError as error:
            if not self._is_full:
                until = "points are left out until there is room"
                warn_of_full(self._folder / "events.*", error, until)
            self._writer, self._is_full = None, True  # what it had buffered is lost

    def close(self) -> None:
        """Close the file; everything in it has been flushed."""
        if self._writer is not None:
            self._writer.close()
