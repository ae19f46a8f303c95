"""Fine-tune pre-trained encoders on downstream tasks, over learning rates and seeds.

    python -m finetune run runs/NAME --tasks cola rte --glue glue_data/
    python -m finetune run runs/NAME --train train.tsv --dev dev.tsv --text sentence --label class

Give the same command again to go on where it was stopped; give it with more tasks, checkpoints,
learning rates or seeds, and only these are run.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError

from finetune.protocol import Protocol, load_protocol
from finetune.results.sweep_record import GridRecord, read_grid
from finetune.sweep.sources import NEWEST, TaskSource, read_sources
from finetune.sweep.sweep import (
    Grid,
    alone_in,
    cells_of,
    describe_grid,
    grown,
    record_of,
    report,
    run_grid,
    save_grid,
)
from finetune.tasks.custom import OwnTask
from finetune.tasks.glue import GLUE, named_task
from pretrain.config.errors import ConfigError, nearest
from pretrain.config.settings import explain

# Settings of a protocol that are options of the command line; the others say what it is.
CHANGEABLE = [name for name in Protocol.model_fields if name not in ("name", "epochs_of")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m finetune run`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "models", nargs="+", metavar="RUN", help="run folder, checkpoint, export, or a BERT model"
    )
    glue = parser.add_argument_group("tasks of GLUE")
    glue.add_argument("--tasks", nargs="+", metavar="TASK", help="all, or names such as cola rte")
    glue.add_argument("--glue", metavar="PLACE", help="folder with GLUE's original files, or hub")
    _add_own_task(parser.add_argument_group("or a task of your own (.tsv, .csv, .jsonl)"))
    grid = parser.add_argument_group("grid")
    grid.add_argument(
        "--checkpoints",
        nargs="+",
        default=[NEWEST],
        metavar="STEP",
        help="of each run: newest, all, or steps (default: newest)",
    )
    grid.add_argument(
        "--from-scratch", action="store_true", help="the same encoders with new weights too"
    )
    grid.add_argument("--to", type=Path, metavar="FOLDER", help="default: RUN/finetune/PROTOCOL")
    grid.add_argument(
        "--workers", type=int, metavar="N", help="runs at once; default: one per GPU, or CPU core"
    )
    grid.add_argument(
        "--predict-test", action="store_true", help="write predictions of GLUE's test sets"
    )
    grid.add_argument("--retry-failed", action="store_true", help="run failed ones again")
    grid.add_argument("--dry-run", action="store_true", help="print what would be run, and exit")
    _add_protocol(parser.add_argument_group("protocol"))


def _add_own_task(group: Any) -> None:
    group.add_argument("--train", type=Path, metavar="FILE", help="rows to learn from")
    group.add_argument("--dev", type=Path, metavar="FILE", help="default: a tenth of --train")
    group.add_argument("--test", type=Path, metavar="FILE", help="rows to predict")
    group.add_argument(
        "--text", nargs="+", dest="texts", metavar="COLUMN", help="one column, or two: a pair"
    )
    group.add_argument("--label", metavar="COLUMN", help="what is to be predicted")
    group.add_argument("--regression", action="store_const", const=True, help="labels are numbers")
    group.add_argument("--name", help="of the task, for tables and folders")


def _add_protocol(group: Any) -> None:
    group.add_argument(
        "--protocol", default="quick", help="quick, tupe, pld, or a .toml file (default: quick)"
    )
    for name in CHANGEABLE:
        field = Protocol.model_fields[name]
        many = get_origin(field.annotation) is tuple
        option = "--" + name.replace("_", "-")
        group.add_argument(
            option, dest=name, nargs="+" if many else None, metavar="X", help=field.description
        )


def main(arguments: argparse.Namespace) -> None:
    """Run what is missing of the grid, and print its table.

    Raises:
        ConfigError: the command line names what does not exist or cannot be combined.
        SystemExit: a run failed; with status 1, after the table.
    """
    if arguments.workers is not None and arguments.workers < 1:
        raise ConfigError(f"--workers {arguments.workers}: give 1 or more")
    protocol, tasks = read_protocol(arguments), read_tasks(arguments)
    folder = arguments.to or default_folder(arguments.models, protocol)
    data = {task.task.name: task.load() for task in tasks}
    predicts_test = arguments.predict_test or arguments.test is not None
    for name, found in data.items():
        for note in found.notes:
            print(f"{name}: {note}", file=sys.stderr)
        if predicts_test and not found.test:
            print(f"{name}: no test file, so that nothing is predicted", file=sys.stderr)
    sources = read_sources(
        arguments.models, arguments.checkpoints, from_scratch=arguments.from_scratch
    )
    grid = Grid(
        folder,
        protocol,
        cells_of(sources, tasks, protocol),
        data,
        predicts_test=predicts_test,
        retries_failed=arguments.retry_failed,
    )
    record = record_of(sources, data, protocol, predicts_test=predicts_test)
    if arguments.dry_run:
        _together(record, folder)
        print(describe_grid(grid))
        return
    with alone_in(folder):
        save_grid(folder, _together(record, folder), data)
        run_grid(grid, arguments.workers)
        report(grid)


def _together(record: GridRecord, folder: Path) -> GridRecord:
    """Return what this start and those before ask for; read when no other process can change it."""
    before = read_grid(folder)
    return record if before is None else grown(before, record, folder)


def read_protocol(arguments: argparse.Namespace) -> Protocol:
    """Return the protocol with the changes of the command line.

    Raises:
        ConfigError: there is no such protocol, or a value is wrong.
    """
    given = vars(arguments)
    changes = {name: given[name] for name in CHANGEABLE if given[name] is not None}
    protocol = load_protocol(arguments.protocol, changes)
    own = OwnTask.model_fields["name"].default if arguments.name is None else arguments.name
    for task in protocol.epochs_of:
        if task not in GLUE and task != own:
            raise ConfigError(
                f"protocol {arguments.protocol}: epochs_of names {task!r}, which is no task"
                f"{nearest(task, list(GLUE))}"
            )
    return protocol


def read_tasks(arguments: argparse.Namespace) -> list[TaskSource]:
    """Return the tasks that the command line names.

    Raises:
        ConfigError: it names none, one that does not exist, or options that do not fit.
    """
    given = {name: vars(arguments)[name] for name in OwnTask.model_fields}
    own = {name: value for name, value in given.items() if value is not None}
    if arguments.tasks is not None:
        if own:
            raise ConfigError(
                f"--{_option(next(iter(own)))} belongs to a task of your own, and --tasks to GLUE; "
                "give one command for each"
            )
        if arguments.glue is None:
            raise ConfigError("--tasks needs --glue: the folder with GLUE's files, or hub")
        wanted = list(GLUE) if "all" in arguments.tasks else arguments.tasks
        tasks = dict.fromkeys(named_task(name) for name in wanted)
        return [TaskSource(task, arguments.glue) for task in tasks]
    if "train" not in own:
        raise ConfigError(
            "no task: give --tasks all --glue FOLDER, or your own --train FILE --text COLUMN "
            "--label COLUMN"
        )
    if arguments.glue is not None:
        raise ConfigError("--glue belongs to --tasks; leave it out for a task of your own")
    try:
        return [TaskSource(OwnTask(**own), "")]
    except ValidationError as error:
        raise ConfigError(explain(error, OwnTask)) from None


def default_folder(models: Sequence[str], protocol: Protocol) -> Path:
    """Return RUN/finetune/PROTOCOL, for a run or one of its checkpoints.

    Raises:
        ConfigError: there are several models, or one that is no folder.
    """
    place = Path(models[0])
    if len(models) == 1 and not place.is_dir():
        raise ConfigError(
            f"there is no folder {place}; if it is a model of the Hugging Face Hub, say where the "
            "results go: --to FOLDER"
        )
    if len(models) > 1:
        raise ConfigError(
            "say where the results of several models go: --to FOLDER, such as --to runs/finetune"
        )
    run = place.parent.parent if place.parent.name == "checkpoints" else place
    return run / "finetune" / protocol.name


def _option(field: str) -> str:
    return "text" if field == "texts" else field
