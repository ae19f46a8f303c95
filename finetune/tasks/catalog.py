"""All suites: one line here makes a suite an option of the commands, with tables and averages."""

from finetune.tasks.glue import GLUE
from finetune.tasks.suite import Suite
from finetune.tasks.task import Task, plain
from pretrain.config.errors import ConfigError

# By the option that names the place of the files, such as --glue FOLDER.
SUITES: dict[str, Suite] = {"glue": GLUE}


def known_tasks() -> dict[str, Task]:
    """Return the tasks of all suites by name, in the order of tables.

    Raises:
        ConfigError: two suites have a task of one name: results, which hold the name alone, would
            be read as those of the other.
    """
    tasks: dict[str, Task] = {}
    owners: dict[str, Suite] = {}
    for suite in SUITES.values():
        for name, task in suite.tasks.items():
            other = owners.setdefault(plain(name), suite)
            if other is not suite:
                raise ConfigError(
                    f"{name} is a task of {other.name} and of {suite.name}; give it another name "
                    f"in one of them, such as {suite.name}-{name}"
                )
            tasks[name] = task
    return tasks


def suite_of(task: str) -> Suite | None:
    """Return the suite that a task belongs to; None: it is the user's own."""
    return next((suite for suite in SUITES.values() if task in suite.tasks), None)
