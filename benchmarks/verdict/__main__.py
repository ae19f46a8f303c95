"""Rebuild docs/VERDICT.md from the records of its runs, or make a record of runs.

    python benchmarks/verdict build                                   tables and figures
    python benchmarks/verdict collect runs/positions                  results/positions.json
    python benchmarks/verdict collect runs/positions --minimal-pairs BLiMP=FOLDER/paradigms.csv
    python benchmarks/verdict collect runs/against --tasks scores/table.csv slow=slow/table.csv

`collect` takes the folder of a sweep, of its records, or of benchmarks/against_hugging_face.
`build` reads the records in results/ and replaces what stands between the marks of docs/VERDICT.md.
"""

import argparse
import csv
import statistics
from collections import defaultdict
from pathlib import Path

from clock import is_comparison, read_comparison
from pages import write_page
from studies import Study, condense, read_study, write_study

from pretrain.compare.run_files import has_ended
from pretrain.compare.runs import read_run
from pretrain.config.errors import ConfigError

ROOT = Path(__file__).parents[2]
TIMES = "times"  # in results/: what benchmarks measured, which are no studies


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(
        prog="verdict",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = options.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="tables and figures of docs/VERDICT.md")
    build.add_argument("--root", type=Path, default=ROOT, help="the folder of results/ and docs/")
    collect = commands.add_parser("collect", help="a record of the finished runs of a sweep")
    collect.add_argument("sweep", type=Path, help="runs/NAME, or its records")
    collect.add_argument("--to", type=Path, help="default: where it is, or results/NAME.json")
    collect.add_argument(
        "--minimal-pairs",
        metavar="NAME=FILE",
        help="the table of `tupelo analyse minimal_pairs` on these runs, as the score NAME",
    )
    collect.add_argument(
        "--tasks",
        nargs="+",
        default=(),
        metavar="[NAME=]FILE",
        help="table.csv of `tupelo finetune table` on these runs; NAME is appended to its scores",
    )
    arguments = options.parse_args()
    if arguments.command == "build":
        records = records_of(arguments.root)
        studies = {name: read_study(file) for name, file in records.items()}
        write_page(studies, arguments.root / "docs")
        return
    name = arguments.sweep.name
    file = arguments.to or records_of(ROOT).get(name, ROOT / "results" / f"{name}.json")
    study = collected(arguments, file.stem)
    lost = score_names(read_study(file)) - score_names(study) if file.exists() else set()
    if lost:
        lost_names = "; ".join(sorted(lost))
        raise SystemExit(f"{file} has scores ({lost_names}): give --minimal-pairs or --tasks again")
    write_study(study, file)
    print(f"{file}: {len(study.runs)} runs, {file.stat().st_size:,} bytes")


def records_of(root: Path) -> dict[str, Path]:
    """Return the files of all records, by the names of their studies.

    Raises:
        SystemExit: two have the same name.
    """
    records: dict[str, Path] = {}
    for file in (root / "results").rglob("*.json"):
        if file.parent.name != TIMES and (other := records.setdefault(file.stem, file)) != file:
            raise SystemExit(f"{other} and {file} have the same name; rename one")
    return records


def score_names(study: Study) -> set[str]:
    """Return the names of the measures that runs have besides their losses."""
    return {name for run in study.runs for name in run.scores}


def collected(arguments: argparse.Namespace, name: str) -> Study:
    """Return the study of the folder that is given.

    Raises:
        SystemExit: a run of it cannot be read, or none of its runs has the scores that are given.
    """
    scores: defaultdict[str, dict[str, float]] = defaultdict(dict)
    tables = [scores_of_tasks(words) for words in arguments.tasks]
    if arguments.minimal_pairs:
        tables.insert(0, scores_of_pairs(arguments.minimal_pairs))
    for table in tables:
        for run, found in table.items():
            scores[run] |= found
    if is_comparison(arguments.sweep):
        study = read_comparison(arguments.sweep, name, scores)
    else:
        try:
            runs = [read_run(folder) for folder in ended_runs(arguments.sweep)]
        except ConfigError as error:
            raise SystemExit(str(error)) from None
        study = condense(name, runs, scores)
    if scores and not score_names(study):
        raise SystemExit(f"{arguments.sweep} has no run that the table of scores names")
    return study


def ended_runs(sweep: Path) -> list[Path]:
    """Return the folders of the runs and trials of a sweep that have ended, runs first.

    A run that an anomaly stopped has ended; those that have not are named on the screen.

    Raises:
        SystemExit: there is none.
    """
    files = [*sweep.glob("*/run.json"), *sweep.glob("trials/*/run.json")]
    folders = sorted((file.parent for file in files), key=lambda one: (len(one.parts), one))
    ended = [folder for folder in folders if has_ended(folder)]
    if not ended:
        raise SystemExit(f"{sweep} holds no finished run")
    for folder in folders:
        if folder not in ended:
            print(f"{folder} has not finished, and is left out")
    return ended


def scores_of_pairs(words: str) -> dict[str, dict[str, float]]:
    """Return the mean accuracy over paradigms of each run in percent, under the name that is given.

    Raises:
        SystemExit: there is no such table.
    """
    name, _, file = words.partition("=")
    accuracies: dict[str, list[float]] = {}
    for row in rows_of_table(f"--minimal-pairs {words}", file):
        accuracies.setdefault(row["run"], []).append(float(row["accuracy"]))
    return {run: {name: 100 * statistics.fmean(found)} for run, found in accuracies.items()}


def scores_of_tasks(words: str) -> dict[str, dict[str, float]]:
    """Return the score of each run on each task in percent, as `tupelo finetune table` counts it.

    Args:
        words: the table, or NAME=FILE; then scores are named `TASK, NAME`.

    Raises:
        SystemExit: there is no such table.
    """
    name, _, file = words.rpartition("=")
    scores: dict[str, dict[str, float]] = {}
    for row in rows_of_table(f"--tasks {words}", file):
        found, column = scores.setdefault(row["run"], {}), row["column"]
        is_one_of_several = any(column.startswith(f"{task} ") for task in found)
        if not is_one_of_several:  # metrics of a task follow the score of the task
            found[column] = float(row["score"])
    if not name:
        return scores
    return {
        run: {f"{task}, {name}": score for task, score in found.items()}
        for run, found in scores.items()
    }


def rows_of_table(option: str, file: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file.

    Raises:
        SystemExit: there is no such file; the option that named it is in the message.
    """
    try:
        with open(file, encoding="utf-8") as stream:
            return list(csv.DictReader(stream))
    except OSError:
        raise SystemExit(f"{option}: there is no such file") from None


if __name__ == "__main__":
    main()
