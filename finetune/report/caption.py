"""What the numbers of a table of scores are."""

from finetune.report.score_table import ScoreTable
from finetune.tasks.catalog import known_tasks
from finetune.tasks.metric_names import METRIC_NAMES


def caption(table: ScoreTable) -> str:
    """Return a description of the numbers."""
    metrics = ", ".join(
        f"{task} {_metrics(table, task)}"
        for task in dict.fromkeys(column.task for column in table.columns)
    )
    sentences = [
        f"Development scores x 100 by protocol {table.protocol}: median (range) over the seeds at "
        "the learning rate with the best median; a diverged seed is the worst",
        f"Metrics: {metrics}",
    ]
    if table.arms:
        sentences.append("Rows of several runs: median (range) over their seeds of pre-training")
    if table.has_average:
        tasks = dict.fromkeys(column.task for column in table.averaged)
        sentences.append(f"Average over {', '.join(tasks)}, {table.rule.description}")
    return ". ".join(sentences) + "."


def _metrics(table: ScoreTable, task: str) -> str:
    """Return the main metric of a task, or those whose mean its score is."""
    names = [METRIC_NAMES.get(metric, metric) for metric in table.metrics(task)]
    if task not in known_tasks() or len(names) == 1 or not table.rule.takes_mean(task):
        return names[0] if names else "-"
    return f"mean of {' and '.join(names)}"
