"""A table as a terminal, Markdown, LaTeX and CSV show it; page.html.j2 shows it on a page."""

import csv
import io
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

GAP = 2  # letters between columns
HEADER = 11  # letters of a name that stay in one line
TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "[": "{[}",  # after the \\ of a row it would be a distance
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)
MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\|<*`~["})


@dataclass(frozen=True)
class Table:
    """A table with a title."""

    title: str
    # The cells by the names of the columns, which are the same in every row. The first line of a
    # cell is its value; what belongs to it, such as an interval, is below.
    rows: Sequence[Mapping[str, str]]
    remark: str = ""  # what the numbers are
    keys: int = 1  # how many of the first columns say what a row is
    # The names of columns of text, which are aligned to the left, as the first one is.
    text: Collection[str] = ()
    # The places (number of the row, name of the column) that are marked.
    best: Collection[tuple[int, str]] = ()

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns; none where there are no rows."""
        return list(self.rows[0]) if self.rows else []

    def as_text(self, width: int) -> str:
        """Return the table in lines of at most `width` letters, as several where it is wider.

        Numbers stay whole; text that takes more than a third of the width is broken into lines, and
        so is the name of a column that is longer than what stands below it.
        """
        parts: list[list[tuple[list[str], int, bool]]] = []
        keys, used = [], 0
        for number, name in enumerate(self.columns):
            is_text = number == 0 or name in self.text
            cells = [row[name] for row in self.rows]
            if is_text:
                cells = [_broken(cell, width // 3) for cell in cells]
            longest = max(len(line) for cell in [*cells, *name.split()] for line in _lines(cell))
            header = _broken(name, max(longest, HEADER))
            longest = max(longest, *map(len, _lines(header)))
            column = ([header, "-" * longest, *cells], longest + GAP, is_text)
            if number < self.keys:
                keys.append(column)
                continue
            if not parts or used + column[1] > width + GAP:
                parts.append([*keys])
                used = sum(wide for _, wide, _ in keys)
            parts[-1].append(column)
            used += column[1]
        text = "\n\n".join(
            tabulate(
                list(zip(*(cells for cells, _, _ in part), strict=True)),
                tablefmt="plain",  # others make a column wider than its header
                colalign=["left" if is_text else "right" for _, _, is_text in part],
                disable_numparse=True,
            )
            for part in parts
        )
        return printable(text)

    def as_markdown(self) -> str:
        """Return the table as Markdown."""
        cells = [[on_one_line(name).translate(MARKDOWN) for name in self.columns]]
        cells += [["---", *["---:"] * (len(self.columns) - 1)]]
        cells += self._in_one_line(MARKDOWN, "**{}**", " - ")
        return printable("\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n")

    def as_latex(self, notes: Sequence[str]) -> str:
        """Return a table environment for the package booktabs; notes are comments."""
        rows = self._in_one_line(TEX, r"\textbf{{{}}}", "--")
        text = "\n".join(
            [
                r"% \usepackage{booktabs}",
                *(f"% {on_one_line(note)}" for note in notes),
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{on_one_line(self.remark).translate(TEX)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
                r"\toprule",
                " & ".join(on_one_line(name).translate(TEX) for name in self.columns) + r" \\",
                r"\midrule",
                *(" & ".join(row) + r" \\" for row in rows),
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )
        return printable(text)

    def _in_one_line(self, escapes: dict[int, str], bold: str, dash: str) -> list[list[str]]:
        """Return the cells with what is below a value in brackets, and ranges with this dash."""
        rows = []
        for number, row in enumerate(self.rows):
            cells = []
            for name, cell in row.items():
                value, *below = cell.translate(escapes).split("\n")
                value = bold.format(value) if (number, name) in self.best else value
                inside = "; ".join(below).replace(" - ", dash)
                cells.append(value + (f" ({inside})" if inside else ""))
            rows.append(cells)
        return rows


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return numbers with all their digits; the columns are those of any record, in their order."""
    stream = io.StringIO()
    names = dict.fromkeys(name for record in records for name in record)
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return printable(stream.getvalue())


def printable(text: str) -> str:
    """Return text without control characters, such as ESC or a change of direction."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in text)


def on_one_line(text: str) -> str:
    """Return a name or a sentence without line breaks."""
    return " ".join(text.split())


def _lines(cell: str) -> list[str]:
    return cell.split("\n")


def _broken(cell: str, width: int) -> str:
    lines = [textwrap.wrap(line, width, break_on_hyphens=False) or [""] for line in _lines(cell)]
    return "\n".join(line for found in lines for line in found)
