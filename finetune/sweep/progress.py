"""How far a grid has come: one bar over all of its runs, or lines where there is no terminal."""

import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from finetune.results.result import Result, Scores
from finetune.sweep.trial import Cell, Message, Remark, Scored, Trained

LINE_SECONDS = 60  # between lines about runs that are not over


class GridProgress:
    """Counts trained rows by the time that they take, and shows the newest scores."""

    def __init__(self, rows: Mapping[Cell, int], row_costs: Mapping[Cell, float]) -> None:
        """Begin.

        Args:
            rows: of each cell that is to be run, times its epochs.
            row_costs: what a row of it costs beside those of the others.
        """
        self._left = {cell: count * row_costs[cell] for cell, count in rows.items()}
        self._row_costs, self._total, self._over = row_costs, len(rows), 0
        self._running: dict[Cell, None] = {}
        self._newest, self._remarks = "", set[str]()
        self._done, self._began = 0.0, time.monotonic()
        self._line_at = self._began
        self._is_terminal = sys.stderr.isatty()
        self._bar: tqdm[Any] = tqdm(
            total=sum(self._left.values()),
            desc=self._count(),
            disable=not self._is_terminal,
            dynamic_ncols=True,
            smoothing=0,  # the mean speed: scoring and starting workers come in bursts
            bar_format="{desc} {percentage:3.0f}% |{bar:16}| "
            "[{elapsed}, {remaining} left]{postfix}",
        )

    def hear(self, cell: Cell, message: Message) -> None:
        """Show what is new of a cell."""
        if isinstance(message, Trained):
            self._advance(cell, message.rows)
            self._running[cell] = None
        elif isinstance(message, Scored):
            scores = f"epoch {message.epoch}: {brief(message.scores)}"
            self._newest = f" | {cell.task.task.name} {scores}"
        elif isinstance(message, Remark):
            self._remark(f"{cell.task.task.name}: {message.text}")
        else:
            self._end(cell, message)
        tasks = ", ".join(dict.fromkeys(running.task.task.name for running in self._running))
        self._bar.set_postfix_str(tasks + self._newest, refresh=False)
        if tasks and time.monotonic() - self._line_at > LINE_SECONDS:
            self._say(tasks + self._newest)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()

    def _end(self, cell: Cell, result: Result) -> None:
        # A run that ended early leaves less to do, and was no faster.
        unneeded = self._left.pop(cell)
        self._bar.total = (self._bar.total or 0) - unneeded
        self._running.pop(cell, None)
        self._over += 1
        self._bar.set_description_str(self._count(), refresh=False)
        if result.status == "finished":
            ending = brief(result.scores) + (f" ({result.reason})" if result.reason else "")
        else:
            ending = f"{result.status}: {result.reason}"
        line = f"{cell.describe()}: {ending}"
        if not self._is_terminal:
            self._say(f"{line}, {result.seconds:.0f} s")
        elif result.status != "finished" or result.reason:
            self._bar.write(line, file=sys.stderr)

    def _remark(self, text: str) -> None:
        """Write a line of its own, once."""
        if text not in self._remarks:
            self._bar.write(text, file=sys.stderr)
        self._remarks.add(text)

    def _advance(self, cell: Cell, rows: int) -> None:
        cost = rows * self._row_costs[cell]
        self._left[cell] -= cost
        self._done += cost
        self._bar.update(cost)

    def _say(self, line: str) -> None:
        """Write a line, unless the bar says it."""
        if self._is_terminal:
            return
        left, elapsed = sum(self._left.values()), time.monotonic() - self._began
        time_left = ""
        if left and self._done:
            time_left = f", {tqdm.format_interval(elapsed * left / self._done)} left"
        print(f"[{self._count()}{time_left}] {line}", file=sys.stderr, flush=True)
        self._line_at = time.monotonic()

    def _count(self) -> str:
        return f"{self._over}/{self._total} runs"


def brief(scores: Scores) -> str:
    """Return the scores in a few characters: metrics in percent, the mean of several splits."""
    names = list(next(iter(scores.values())))
    means = {name: statistics.fmean(split[name] for split in scores.values()) for name in names}
    return ", ".join(f"{name} {100 * mean:.1f}" for name, mean in means.items())
