"""Shows the optimizer steps of a run: a bar in a terminal, lines in a log file."""

import sys
from contextlib import suppress
from typing import Any

from tqdm import tqdm

from data_prep.files.progress_bar import ProgressLines
from pretrain.config.settings import RunSettings

LONGEST_NAME = 20  # in the bar, which must leave room for loss and speed


class StepDisplay:
    """The progress of one launch, on stderr of the first rank. A context manager.

    The loss is that of the last line of metrics: nothing here waits for the device.
    """

    def __init__(self, settings: RunSettings, step: int, *, shown: bool) -> None:
        """Begin after so many finished steps."""
        # Of a run of given hours it is not known yet.
        self._total = settings.steps if settings.hours is None else None
        self._name, self._first, self._step = settings.name, step, step
        self._log_every_steps = settings.log_every_steps
        self._metrics: dict[str, Any] | None = None
        self._lines: ProgressLines | None = None
        is_terminal = sys.stderr.isatty()
        if shown and not is_terminal:
            self._lines = ProgressLines(self._describe, step)
            self._lines.print()
        # The bar takes the room which the numbers leave; the time left is cut first.
        name, steps = settings.name, "{n:,}" if self._total is None else "{n:,}/{total:,}"
        self._bar: tqdm[Any] = tqdm(
            total=self._total,
            initial=step,
            desc=name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…",
            disable=not (shown and is_terminal),
            dynamic_ncols=True,
            mininterval=0.2,
            bar_format="{desc} {percentage:3.0f}% |{bar}| " + steps + "{postfix}, {remaining} left",
        )

    def __enter__(self) -> "StepDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
        if self._lines is not None:
            self._lines.print()

    def advance(self) -> None:
        """Show that a step is finished."""
        self._step += 1
        self._bar.update()
        if self._lines is not None:
            self._lines.n = self._step
            if self._step % self._log_every_steps:  # else metrics of this step follow
                self._lines.print_if_due()

    def end_at(self, step: int | None) -> None:
        """Show another last step: that of a run of given hours follows its speed."""
        self._bar.total = self._total = step

    def show_metrics(self, metrics: dict[str, Any]) -> None:
        """Show a line of metrics from now on."""
        is_first, self._metrics = self._metrics is None, metrics
        self._bar.set_postfix_str(
            f"loss {metrics['loss']:.3f}, {metrics['tokens_per_second']:,.0f} tokens/s"
        )
        if self._lines is not None:
            if is_first:
                self._lines.print()
            self._lines.print_if_due()

    def show_evaluation(self, step: int, loss: float) -> None:
        """Print a held-out loss on stdout."""
        if self._lines is not None:
            self._lines.print()
        with suppress(OSError):  # a full disk: evals.jsonl will have it
            self._bar.write(f"step {step:>7,}: held-out loss {loss:.4f}")

    def _describe(self) -> str:
        assert self._lines is not None
        done = f"step {self._step:,}"
        if self._total is not None:
            done += f"/{self._total:,} ({self._step / self._total:.0%})"
        if self._step == self._first:
            return f"{self._name}: {f'continues after {done}' if self._step else 'starts'}"
        numbers = ""
        if self._metrics is not None:
            last = self._metrics["step"]
            numbers = (
                f", loss {self._metrics['loss']:.4f}{f' at {last:,}' if last < self._step else ''}"
                f", learning rate {self._metrics['learning_rate']:.2e}, "
                f"{self._metrics['tokens_per_second']:,.0f} tokens/s"
            )
        return f"{self._name}: {done}{numbers}{self._lines.time_left(self._total)}"
