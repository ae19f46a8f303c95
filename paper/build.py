"""Rebuild the tables and figures of the paper from its records, or make a record of runs.

    python paper/build.py build
    python paper/build.py collect runs/relative                      results/relative.json
    python paper/build.py collect runs/relative --scores pairs.csv
    python paper/build.py collect runs/larger --scores scores/table.csv slow=slow/table.csv

`build` replaces what stands between the marks of README.md and APPENDIX.md; the rest is written by
hand. A mark names a table or a figure, a study or several joined by +, and its arms:

    <!-- table ends relative bert_r -->
    ...
    <!-- end -->
    <!-- table answers relative: Is the untied form lower? | tupe_r | bert_r; ... -->
    <!-- table answers larger: Does it score higher? | tupe_r | bert_r | average; ... -->
    <!-- table primary: Is the untied form lower? | relative | tupe_r | bert_r | its limits; ... -->
    <!-- table scores relative bert_r: CoLA | average -->
    <!-- figure curves relative -->
"""

import argparse
import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from pathlib import Path

import figures
import tables
from collect import collect, read_scores
from records import FOLDER, Study, join, read_study, records, write_study

PAPER = Path(__file__).parent
PAGES = ("README.md", "APPENDIX.md")
MARK = re.compile(r"(<!-- (table|figure) (.*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

FIGURES: Mapping[str, Callable[..., None]] = {
    "clock": figures.clock,
    "curves": figures.curves,
    "cost": figures.cost,
}


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = options.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="tables and figures of README.md and APPENDIX.md")
    collecting = commands.add_parser("collect", help="a record of the finished runs of a sweep")
    collecting.add_argument("sweep", type=Path, help="runs/NAME, or its records")
    collecting.add_argument("--to", type=Path, help="default: where it is, or results/NAME.json")
    collecting.add_argument(
        "--scores",
        nargs="+",
        default=(),
        metavar="[NAME=]FILE",
        help="table.csv of `tupelo finetune table` on these runs, or what minimal_pairs.py prints; "
        "NAME is appended to its scores",
    )
    arguments = options.parse_args()
    if arguments.command == "build":
        for page in PAGES:
            text = (PAPER / page).read_text(encoding="utf-8")
            (PAPER / page).write_text(MARK.sub(replaced, text), encoding="utf-8")
    else:
        make_record(arguments)


def make_record(arguments: argparse.Namespace) -> None:
    """Write the record of a sweep.

    Raises:
        SystemExit: it has no finished run, or the record has scores that would be lost.
    """
    name = arguments.sweep.resolve().name
    file = arguments.to or records().get(name, FOLDER / f"{name}.json")
    scores: dict[str, dict[str, float]] = {}
    for words in arguments.scores:
        for run, found in read_scores(words).items():
            scores.setdefault(run, {}).update(found)
    study = collect(arguments.sweep, file.stem, scores)
    lost = _score_names(read_study(file)) - _score_names(study) if file.exists() else set()
    if lost:
        raise SystemExit(f"{file} has scores ({'; '.join(sorted(lost))}): give --scores again")
    write_study(study, file)
    print(f"{file}: {len(study.runs)} runs, {file.stat().st_size:,} bytes")


def _score_names(study: Study) -> set[str]:
    return set(ChainMap(*(dict(run.scores) for run in study.runs)))


def replaced(mark: re.Match[str]) -> str:
    """Return a mark with its table or figure.

    Raises:
        SystemExit: it names a study, a table or a figure that does not exist.
    """
    begin, kind, words, old, end = mark.groups()
    if "<!--" in old:
        raise SystemExit(f"<!-- end --> is missing after {begin.strip()}")
    head, _, asked = words.partition(":")
    part, *given = head.split()
    rows = [[cell.strip() for cell in row.split("|")] for row in asked.split(";")]
    if kind == "table" and part == "primary":
        content = tables.primary(
            [tables.Question(text, studied(name), *arms) for text, name, *arms, _ in rows],
            [limit for *_, limit in rows],
        )
    elif kind == "figure" and part in FIGURES:
        name, *arms = given
        file = PAPER / "figures" / f"{name.split('+')[0]}-{part}.png"
        FIGURES[part](studied(name), *arms, file)
        content = f"![{part} of {name}](figures/{file.name})"
    else:
        name, *arms = given
        content = table(part, studied(name), arms, rows)
    return f"{begin}{content}\n{end}"


def table(part: str, study: Study, arms: list[str], rows: list[list[str]]) -> str:
    """Return a table of one study.

    Raises:
        SystemExit: there is no table of this name.
    """
    match part:
        case "answers":
            return tables.answers([tables.Question(text, study, *rest) for text, *rest in rows])
        case "scores":
            return tables.scores(study, arms[0], [name for name in rows[0] if name])
        case "ends" | "tuning" | "seconds" | "speed" | "clock":
            simple: Callable[..., str] = getattr(tables, part)
            return simple(study, *arms)
    raise SystemExit(f"there is no table {part}")


def studied(names: str) -> Study:
    """Return the studies of these names, joined by +, as one.

    Raises:
        SystemExit: one does not exist.
    """
    files = records()
    for name in names.split("+"):
        if name not in files:
            raise SystemExit(f"there is no results/{name}.json")
    return join([read_study(files[name]) for name in names.split("+")])


if __name__ == "__main__":
    main()
