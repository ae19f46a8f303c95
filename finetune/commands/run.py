r"""Fine-tune pre-trained encoders on downstream tasks, over learning rates and seeds.

    tupelo finetune run runs/NAME --tasks cola rte --glue glue_data/
    tupelo finetune run runs/NAME --train train.tsv --dev dev.tsv \
        --text sentence --label class

The same command continues a stopped sweep, and adds trials for new tasks, checkpoints, learning
rates or seeds.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from data_prep.command_line import given_settings
from data_prep.commands.options import at_least_1
from data_prep.files.program import shell_command
from finetune.protocol import Protocol, load_protocol
from finetune.results.result import SWEEP_FILE
from finetune.results.sweep_results import (
    DEFAULT_KEEP,
    Keep,
    SweepRecord,
    ended_trials,
    read_sweep_record,
)
from finetune.sweep.folder import default_folder, merged, record_of, save_sweep_record
from finetune.sweep.references import NEWEST, TaskRef, read_model_refs
from finetune.tasks.catalog import SUITES
from finetune.tasks.custom import OwnTask
from pretrain.config.errors import ConfigError
from pretrain.config.run_files import RUN_FILE, result_of
from pretrain.config.settings import explained
from pretrain.train.sweeps.pool import locked

if TYPE_CHECKING:
    from finetune.sweep.sweep import TrialSweep

# Settings of a protocol that are options of the command line.
CHANGEABLE = [name for name in Protocol.model_fields if name not in ("name", "epochs_of")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune run`."""
    parser.add_argument(
        "models",
        nargs="*",
        metavar="RUN",
        help="run folder, checkpoint, export, an encoder of transformers, or a fine-tuned model",
    )
    suites = parser.add_argument_group("tasks of a suite")
    suites.add_argument("--tasks", nargs="+", metavar="TASK", help="all, or names such as cola rte")
    for option, suite in SUITES.items():
        suites.add_argument(
            f"--{option}",
            metavar="PLACE",
            help=f"folder with {suite.name}'s original files, or hub",
        )
    own = parser.add_argument_group("or a task of your own")
    kinds: dict[str, dict[str, Any]] = {
        **dict.fromkeys(("train", "dev", "test"), {"type": Path, "metavar": "FILE"}),
        "texts": {"nargs": "+", "metavar": "COLUMN"},
        **dict.fromkeys(("regression", "multi_label"), {"action": "store_const", "const": True}),
    }
    for name, field in OwnTask.model_fields.items():
        option = "--text" if name == "texts" else f"--{name}"
        own.add_argument(option, dest=name, help=field.description, **kinds.get(name, {}))
    sweep = parser.add_argument_group("sweep")
    sweep.add_argument(
        "--checkpoints",
        nargs="+",
        default=[NEWEST],
        metavar="STEP",
        help="of each run: newest, all, or steps (default: newest)",
    )
    sweep.add_argument(
        "--from-scratch", action="store_true", help="also the same encoders with random weights"
    )
    sweep.add_argument("--to", type=Path, metavar="FOLDER", help="default: RUN/finetune/PROTOCOL")
    sweep.add_argument(
        "--at-once",
        type=at_least_1,
        metavar="N",
        help="trials at once; default: one per GPU or CPU core",
    )
    sweep.add_argument(
        "--keep",
        choices=get_args(Keep),
        help="models to keep: best (the median seed of each task's best learning rate), all or "
        "none; default: as before, or best",
    )
    sweep.add_argument("--predict-test", action="store_true", help="predict the test sets too")
    sweep.add_argument("--dry-run", action="store_true", help="print what would run")
    protocol = parser.add_argument_group("protocol")
    protocol.add_argument(
        "--protocol",
        default="quick",
        help="quick, tupe, pld, electra, or a .toml file (default: quick)",
    )
    for name in CHANGEABLE:
        words = Protocol.model_fields[name].description
        protocol.add_argument(f"--{name}", default=argparse.SUPPRESS, metavar="X", help=words)


def main(arguments: argparse.Namespace) -> None:
    """Run the missing trials of the sweep, and print its table.

    Raises:
        ConfigError: an option names something that does not exist, or options conflict.
        SystemExit: a trial failed; with status 1, after the table.
    """
    if not arguments.models:
        raise ConfigError(
            "no model: give a run folder, a checkpoint or an encoder, and a task, such as: "
            + shell_command("finetune", "run", "runs/NAME", "--tasks", "all", "--glue", "FOLDER")
        )
    sweep, record = _requested(arguments)
    from finetune.sweep.sweep import describe_sweep, report, run_sweep

    if arguments.dry_run:
        print(describe_sweep(sweep))
        return
    with locked(sweep.folder):
        save_sweep_record(sweep.folder, record, sweep.data)
        try:
            report(sweep, has_failed=run_sweep(sweep, arguments.at_once))
        finally:
            if not ended_trials(sweep.folder):  # stopped: the next command may differ from it
                (sweep.folder / SWEEP_FILE).unlink()


def _requested(arguments: argparse.Namespace) -> tuple["TrialSweep", SweepRecord]:
    """Return the sweep of the command, and the record of what it adds to the folder.

    Everything is read and checked, the cheapest first, and nothing is written.
    """
    changes = given_settings(arguments, {name: Protocol.model_fields[name] for name in CHANGEABLE})
    protocol, tasks = load_protocol(arguments.protocol, changes), read_tasks(arguments)
    folder = arguments.to or default_folder(arguments.models, protocol)
    before = read_sweep_record(folder)
    data = {task.name: task.load() for task in tasks}
    for name, found in data.items():
        if protocol.class_weights != "none" and not found.task.labels:
            raise ConfigError(f"{name} has no classes to weigh; leave class_weights out")
        if protocol.orders_on(name) == 2 and len(found.task.texts) != 2:
            raise ConfigError(
                f"both_orders names {name}, whose examples are single texts; name tasks of pairs"
            )
    models = read_model_refs(
        arguments.models,
        arguments.checkpoints,
        from_scratch=arguments.from_scratch,
        recorded=before.models if before else (),
    )
    from finetune.sweep.sweep import TrialSweep, trials_of  # torch takes seconds

    predicts_test = arguments.predict_test or arguments.test is not None
    notes = [(name, note) for name, found in data.items() for note in found.notes]
    if predicts_test:
        notes += [(name, "no test file") for name, found in data.items() if not found.test]
    if NEWEST in arguments.checkpoints:
        notes += [
            (place, "not finished, or it diverged; its newest checkpoint is used")
            for place in arguments.models
            if (Path(place) / RUN_FILE).is_file() and result_of(Path(place)) is None
        ]
    for name, metric in (before.metrics if before else {}).items():
        if name in data and metric != (now := data[name].task.metrics[0]):
            notes.append((name, f"its main metric was {metric}, and is {now} now"))
    for name, note in notes:
        print(f"{name}: {note}", file=sys.stderr)
    record = record_of(models, data, protocol, predicts_test=predicts_test, keep=arguments.keep)
    sweep = TrialSweep(
        folder,
        protocol,
        trials_of(models, tasks, protocol),
        data,
        predicts_test=predicts_test,
        keep=merged(record, folder).keep or DEFAULT_KEEP,
    )
    return sweep, record


def read_tasks(arguments: argparse.Namespace) -> list[TaskRef]:
    """Return the tasks that the command line names.

    Raises:
        ConfigError: it names none or one that does not exist, or options conflict.
    """
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    own = {name: given[name] for name in OwnTask.model_fields if name in given}
    places = [name for name in SUITES if name in given]
    if "tasks" in given and len(places) == 1 and not own:
        suite, place = SUITES[places[0]], given[places[0]]
        names = list(suite.tasks) if "all" in arguments.tasks else arguments.tasks
        tasks = dict.fromkeys(suite.named(name) for name in names)
        return [TaskRef(task, place, suite) for task in tasks]
    if "tasks" in given or places or "train" not in own:
        raise ConfigError(
            "name tasks of a suite (--tasks all --glue FOLDER), or one of your own (--train FILE "
            "--text COLUMN --label COLUMN), and not both in one command"
        )
    with explained(settings=OwnTask):
        return [TaskRef(OwnTask(**own))]
