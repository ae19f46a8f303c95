"""What the numbers of a table of scores are, in words."""

import statistics

from finetune.report.score_table import MAJORITY, ScoreTable
from finetune.tasks.catalog import known_tasks
from finetune.tasks.metric_names import METRIC_NAMES
from pretrain.reports.words import listed


def caption(table: ScoreTable) -> str:
    """Return a description of the numbers."""
    seeds = usual_seeds(table)
    sentences = [
        f"Scores on the development sets x 100 after fine-tuning by protocol {table.protocol}"
        + "".join(f"; {words}" for words in _metrics_in_words(table)),
        f"Median (range) over {seeds} seeds of fine-tuning, unless said otherwise, at the "
        "learning rate whose median is best"
        if seeds > 1
        else "One seed, unless said otherwise, at the learning rate that is best",
        "A diverged seed counts as worse than any score; ranges are over finished seeds",
    ]
    if table.arms:
        sentences.append(
            f"{listed([table.label(arm.row) for arm in table.arms])}: median (range) over the "
            "seeds of pre-training, of the scores of the runs below"
        )
    if table.has_average:
        sentences.append(_average_in_words(table))
    return ". ".join(sentences) + "."


def usual_seeds(table: ScoreTable) -> int:
    """Return how many seeds most entries of the table have."""
    numbers = [
        rates[0].num_requested
        for (row, _), rates in table.rates.items()
        if row != MAJORITY and row in table.rows
    ]
    return statistics.mode(numbers) if numbers else 1


def _metrics_in_words(table: ScoreTable) -> list[str]:
    """Return what the scores of which tasks are."""
    tasks: dict[str, list[str]] = {}
    for task in dict.fromkeys(column.task for column in table.columns):
        metrics = table.metrics(task)
        if metrics:
            tasks.setdefault(_score_in_words(table, task, metrics), []).append(task)
    return [f"{words} on {listed(names)}" for words, names in tasks.items()]


def _score_in_words(table: ScoreTable, task: str, metrics: list[str]) -> str:
    names = [METRIC_NAMES.get(metric, metric) for metric in metrics]
    if task not in known_tasks() or len(names) == 1:
        return names[0]
    what = f"the mean of {listed(names)}" if table.rule.takes_mean(task) else names[0]
    return f"{what} (below it {'/'.join(names)})"


def _average_in_words(table: ScoreTable) -> str:
    tasks = list(dict.fromkeys(column.task for column in table.averaged))
    is_whole = len(tasks) == len(table.rule.tasks)
    over = f"all {len(tasks)} tasks" if is_whole else f"{', '.join(tasks)} only"
    return f"The average is over {over}, {table.rule.description}"
