"""All suites: one line here makes a suite an option of the commands, with tables and averages."""

from finetune.tasks.glue import GLUE
from finetune.tasks.suite import Suite
from finetune.tasks.task import Task

# By the option that names the place of the files, such as --glue FOLDER.
SUITES: dict[str, Suite] = {"glue": GLUE}


def known_tasks() -> dict[str, Task]:
    """Return the tasks of all suites by name, in the order of tables."""
    return {name: task for suite in SUITES.values() for name, task in suite.tasks.items()}


def suite_of(task: str) -> Suite | None:
    """Return the suite that a task belongs to; None: it is the user's own."""
    return next((suite for suite in SUITES.values() if task in suite.tasks), None)
