"""The progress of a sweep: one bar over all trials, or a line for each if there is no terminal."""

import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from finetune.results.result import Scores, TrialResult
from finetune.sweep.trial import Message, Remark, Scored, Trained, Trial


class SweepProgress:
    """Counts trained rows, and shows the newest scores."""

    def __init__(self, rows: Mapping[Trial, int]) -> None:
        """Begin with the rows of each trial to be run, times its epochs."""
        self._left, self._total, self._over = dict(rows), len(rows), 0
        self._remarks = set[str]()
        self._done, self._began = 0, time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._bar: tqdm[Any] = tqdm(
            total=sum(self._left.values()),
            desc=self._count(),
            disable=not self._is_terminal,
            dynamic_ncols=True,
            smoothing=0,  # mean speed: scoring and starting workers are bursts
            bar_format="{desc} {percentage:3.0f}% |{bar:16}| "
            "[{elapsed}, {remaining} left]{postfix}",
        )

    def receive(self, trial: Trial, message: Message) -> None:
        """Show a message of a trial."""
        if isinstance(message, Trained):
            self._left[trial] -= message.rows
            self._done += message.rows
            self._bar.update(message.rows)
        elif isinstance(message, Scored):
            scores = f"epoch {message.epoch}: {brief(message.scores)}"
            self._bar.set_postfix_str(f"{trial.task.name} {scores}", refresh=False)
        elif isinstance(message, Remark):
            line = f"{trial.task.name}: {message.text}"
            if line not in self._remarks:  # each trial of the task sends it
                self._bar.write(line, file=sys.stderr)
            self._remarks.add(line)
        else:
            self._end(trial, message)

    def close(self) -> None:
        """Close the bar and leave it on the screen."""
        self._bar.close()

    def _end(self, trial: Trial, result: TrialResult) -> None:
        # The rest of a trial that ended early is not trained: it leaves the total.
        self._bar.total = (self._bar.total or 0) - self._left.pop(trial)
        self._over += 1
        self._bar.set_description_str(self._count(), refresh=False)
        ending = [brief(result.scores) if result.scores else result.status, result.reason]
        line = f"{trial.describe()}: {': '.join(filter(None, ending))}"
        if not self._is_terminal:
            left, elapsed = sum(self._left.values()), time.monotonic() - self._began
            time_left = tqdm.format_interval(elapsed * left / max(1, self._done))
            line = f"[{self._count()}, {time_left} left] {line}, {result.seconds:.0f} s"
            print(line, file=sys.stderr, flush=True)
        elif result.status != "finished" or result.reason:
            self._bar.write(line, file=sys.stderr)

    def _count(self) -> str:
        return f"{self._over}/{self._total} trials"


def brief(scores: Scores) -> str:
    """Return the scores in a few characters: metrics in percent, the mean of several splits."""
    names = list(next(iter(scores.values())))
    means = {name: statistics.fmean(split[name] for split in scores.values()) for name in names}
    return ", ".join(f"{name} {100 * mean:.1f}" for name, mean in means.items())
