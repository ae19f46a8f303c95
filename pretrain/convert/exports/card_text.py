"""Text of model cards, which others read and the Hub renders: names must stay names.

HTML, tables, headings and fences that are hidden in a name are shown as they are written, and
folders of the machine are left out of paths.
"""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from tabulate import tabulate

from data_prep.files.redaction import without_folders

Rows = Sequence[Sequence[Any]]


def render_card(template: Path, **fields: Any) -> str:
    """Return a card; in it `| plain` is for names, `| quoted` for values, `| python` for code."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, Path(__file__).parent]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"plain": plain_text, "python": repr, "quoted": quoted_text}
    return environment.get_template(template.name).render(fields)


def card_table(rows: Rows, headers: Sequence[str]) -> str:
    """Return a table of Markdown."""
    cells = [[plain_text(cell) for cell in row] for row in rows]
    return tabulate(cells, headers=headers, tablefmt="github", disable_numparse=True)


def plain_text(value: Any) -> str:
    """Return a name or a sentence on one line, without folders, HTML and ends of cells."""
    text = " ".join(without_folders(str(value)).split())
    return html.escape(text, quote=False).replace("|", "\\|").replace("`", "'")


def quoted_text(value: str) -> str:
    """Return a label or the name of a column in quotes, as it is written."""
    return html.escape(json.dumps(value, ensure_ascii=False), quote=False)


def shown_place(folder: Path) -> str:
    """Return what examples call the folder of the card: of an absolute path the name."""
    return folder.name if folder.is_absolute() else str(folder)
