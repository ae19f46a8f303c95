"""Rebuild docs/VERDICT.md from the records of its runs, or make a record of runs.

    python benchmarks/verdict build                                   tables and figures
    python benchmarks/verdict collect runs/positions                  results/positions.json
    python benchmarks/verdict collect runs/positions --minimal-pairs BLiMP=FOLDER/paradigms.csv
    python benchmarks/verdict collect runs/against --tasks scores/table.csv

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

from pretrain.compare.runs import read_run

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
    collect.add_argument("sweeps", type=Path, nargs="+", help="runs/NAME, or its records")
    collect.add_argument("--to", type=Path, help="default: where it is, or results/NAME.json")
    collect.add_argument(
        "--minimal-pairs",
        metavar="NAME=FILE",
        help="the table of `tupelo analyse minimal_pairs` on these runs, as the score NAME",
    )
    collect.add_argument(
        "--tasks", metavar="FILE", help="table.csv of `tupelo finetune table` on these runs"
    )
    arguments = options.parse_args()
    if arguments.command == "build":
        records = records_of(arguments.root)
        studies = {name: read_study(file) for name, file in records.items()}
        write_page(studies, arguments.root / "docs")
        return
    name = arguments.sweeps[0].name
    file = arguments.to or records_of(ROOT).get(name, ROOT / "results" / f"{name}.json")
    study = collected(arguments, file.stem)
    write_study(study, file)
    print(f"{file}: {len(study.runs)} runs, {file.stat().st_size:,} bytes")


def records_of(root: Path) -> dict[str, Path]:
    """Return the files of all records, by the names of their studies."""
    files = (root / "results").rglob("*.json")
    return {file.stem: file for file in files if file.parent.name != TIMES}


def collected(arguments: argparse.Namespace, name: str) -> Study:
    """Return the study of the folders that are given."""
    scores: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for words, read in (
        (arguments.minimal_pairs, scores_of_pairs),
        (arguments.tasks, scores_of_tasks),
    ):
        for run, found in read(words).items() if words else ():
            scores[run] |= found
    first = arguments.sweeps[0]
    if is_comparison(first):
        return read_comparison(first, name, scores)
    runs = [read_run(folder) for sweep in arguments.sweeps for folder in finished_runs(sweep)]
    return condense(name, runs, scores)


def finished_runs(sweep: Path) -> list[Path]:
    """Return the folders of the runs and trials of a sweep that have ended, runs first.

    Raises:
        SystemExit: there is none.
    """
    files = [*sweep.glob("*/result.json"), *sweep.glob("trials/*/result.json")]
    if not files:
        raise SystemExit(f"{sweep} holds no finished run")
    return sorted((file.parent for file in files), key=lambda folder: (len(folder.parts), folder))


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


def scores_of_tasks(file: str) -> dict[str, dict[str, float]]:
    """Return the score of each run on each task in percent, as `tupelo finetune table` counts it.

    Raises:
        SystemExit: there is no such table.
    """
    scores: dict[str, dict[str, float]] = {}
    for row in rows_of_table(f"--tasks {file}", file):
        found, column = scores.setdefault(row["run"], {}), row["column"]
        is_one_of_several = any(column.startswith(f"{task} ") for task in found)
        if not is_one_of_several:  # metrics of a task follow the score of the task
            found[column] = float(row["score"])
    return scores


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
