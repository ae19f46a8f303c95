"""Read a task of GLUE from wherever it lies."""

from pathlib import Path

from finetune.glue_files import read_files
from finetune.hub import read_hub
from finetune.tasks import Task, TaskData

HUB = "hub"


def read_glue(task: Task, place: str) -> TaskData:
    """Read a task of GLUE.

    Args:
        task: one of `tasks.GLUE`.
        place: the folder of the original files, or "hub" for the Hugging Face Hub.

    Raises:
        ConfigError: there is no such folder.
        TaskError: files are missing or damaged, or the Hub cannot be reached.
    """
    return read_hub(task) if place == HUB else read_files(task, Path(place))
