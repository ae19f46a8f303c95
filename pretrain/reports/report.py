"""A report: a table, what it is of and what limits it, in a terminal and in a folder of files."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from data_prep.files.atomic import save_text
from pretrain.reports.table import MARKDOWN, Table, as_csv, on_one_line, printable
from pretrain.reports.words import paragraph


class Picture(NamedTuple):
    """A picture as SVG."""

    title: str
    svg: str


@dataclass(frozen=True)
class Report:
    """The content of a report."""

    lead: str  # what is compared, in a line
    table: Table
    notes: Sequence[str]  # warnings, a line each
    # Those of the table with all their digits, a dict for each line of table.csv.
    numbers: Sequence[Mapping[str, Any]]

    def as_text(self, width: int) -> str:
        """Return the report for a terminal of `width` letters."""
        lead, remark = (paragraph(text, width) for text in (self.lead, self.table.remark))
        notes = [paragraph(note, width, first="note: ", rest="      ") for note in self.notes]
        text = "\n".join(filter(None, [lead, self.table.as_text(width), remark, *notes]))
        return printable(text)

    def write(
        self,
        folder: Path,
        *,
        pictures: Sequence[Picture] = (),
        details: Sequence[Table] = (),
        method: str,
        provenance: Sequence[str] = (),
    ) -> None:
        """Write table.md, table.csv, table.tex, and index.html, which needs no other file.

        `details` are tables that a click opens, and `provenance` lines of small print.
        """
        below = [self.table.remark, *(f"- {note}" for note in self.notes)]
        below = [on_one_line(line).translate(MARKDOWN) for line in filter(None, below)]
        markdown = self.table.as_markdown() + "".join(f"\n{line}\n" for line in below)
        save_text(folder / "table.md", printable(markdown))
        save_text(folder / "table.csv", as_csv(self.numbers))
        save_text(folder / "table.tex", self.table.as_latex(self.notes))
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(Path(__file__).parent),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        # As the address of an image: ids and styles of two pictures do not meet there.
        environment.filters["base64"] = lambda svg: base64.b64encode(svg.encode()).decode()
        page = environment.get_template("page.html.j2").render(
            report=self,
            pictures=pictures,
            details=[table for table in details if table.rows],
            method=method,
            provenance=provenance,
        )
        save_text(folder / "index.html", printable(page))
