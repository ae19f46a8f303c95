"""docs/VERDICT.md: what stands between its marks is replaced, the rest is written by hand.

A mark names a table or a figure, a study or several joined by +, and what it is drawn against:

    <!-- table ends positions bert_r -->
    ...
    <!-- end -->
    <!-- table answers positions: Is the untied form lower? | tupe_r | bert_r; ... -->
    <!-- table answers positions: Does it score higher? | tupe_r | bert_r | average; ... -->
    <!-- table scores positions bert_r: CoLA | average -->
    <!-- figure curves positions -->
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import figures
import tables
from studies import Study, join
from tables import Question

from data_prep.files.atomic import save_text

PAGE, FIGURES = "VERDICT.md", "figures"
MARK = re.compile(r"(<!-- (table|figure) (.*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

Table = Callable[..., str]  # of a study and the words of a mark, what follows a colon as one
TABLES: Mapping[str, Table] = {
    "clock": tables.clock,
    "ends": tables.ends,
    "tuning": tables.tuning,
    "seconds": tables.seconds,
    "answers": lambda study, asked: tables.answers(
        study, [_question(one) for one in asked.split(";")]
    ),
    "scores": lambda study, baseline, asked="": tables.scores(study, baseline, _parts(asked)),
    "speed": lambda study, baseline, *targets: tables.speed(
        study, baseline, [float(target) for target in targets]
    ),
}
FIGURE_KINDS: Mapping[str, Callable[..., None]] = {
    "clock": figures.clock,
    "curves": figures.curves,
    "cost": figures.cost,
}


def write_page(studies: Mapping[str, Study], docs: Path) -> None:
    """Replace every table of the page, and draw every figure.

    Raises:
        SystemExit: a mark names a study, a table or a figure that does not exist.
    """
    page = docs / PAGE
    text = page.read_text(encoding="utf-8")
    save_text(page, MARK.sub(lambda mark: _replaced(mark, studies, docs), text))


def _replaced(mark: re.Match[str], studies: Mapping[str, Study], docs: Path) -> str:
    begin, kind, words, old, end = mark.groups()
    if "<!--" in old:
        raise SystemExit(f"{PAGE}: <!-- end --> is missing after {begin.strip()}")
    head, *asked = words.split(":", 1)
    part, name, *given = head.split()
    for one in name.split("+"):
        if one not in studies:
            raise SystemExit(f"{PAGE}: there is no results/{one}.json")
    study = join([studies[one] for one in name.split("+")])
    if kind == "figure":
        _known(part, FIGURE_KINDS)
        file = docs / FIGURES / f"{name}-{part}.png"
        FIGURE_KINDS[part](study, *given, file=file)
        content = f"![{part} of {name}]({FIGURES}/{file.name})"
    else:
        _known(part, TABLES)
        content = TABLES[part](study, *given, *asked)
    return f"{begin}{content}\n{end}"


def _question(text: str) -> Question:
    return Question(*_parts(text))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split("|") if part.strip()]


def _known(part: str, parts: Mapping[str, object]) -> None:
    if part not in parts:
        raise SystemExit(f"{PAGE}: {part} is none of {', '.join(parts)}")
