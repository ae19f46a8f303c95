"""A suite: tasks that are published together and averaged together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from data_prep.files.quoting import one_spelling
from finetune.tasks.task import Task
from pretrain.config.errors import ConfigError


@dataclass(frozen=True)
class AverageRule:
    """How metrics and development sets become one score per task, and scores an average."""

    description: str  # ends the sentence "The average is over all tasks, ..."
    tasks: tuple[str, ...]  # that the average is over
    metric: Literal["mean", "first"]  # of a task's metrics: what its score is
    unit: Literal["task", "development set"]  # what counts once in the average

    def takes_mean(self, task: str) -> bool:
        """Return whether the score of a task is the mean of its metrics, not the first one."""
        return self.metric == "mean" and task in self.tasks


@dataclass(frozen=True)
class Suite:
    """Everything about a suite but the metrics, which suites share."""

    name: str  # in tables and messages
    tasks: Mapping[str, Task] = field(hash=False)  # by name, in the order of tables
    # By the name that --average has for it, different in every suite; the first is the default.
    averages: Mapping[str, AverageRule] = field(hash=False)
    hub: str = ""  # data set on the Hugging Face Hub; empty: the suite is not there

    def named(self, name: str) -> Task:
        """Return the task with this name, ignoring case and hyphens.

        Raises:
            ConfigError: there is none.
        """
        by_plain_name = {one_spelling(task.name): task for task in self.tasks.values()}
        if one_spelling(name) in by_plain_name:
            return by_plain_name[one_spelling(name)]
        raise ConfigError(f"there is no task {name!r}; one of {', '.join(self.tasks)}")


def by_name(*tasks: Task) -> dict[str, Task]:
    """Return tasks by their names, in this order."""
    return {task.name: task for task in tasks}
