"""Text of model cards, which others read and the Hub renders: names must stay names.

HTML, links, emphasis, tables, headings and fences that are hidden in a name are shown as they are
written, and folders of the machine are left out of paths.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from tabulate import tabulate

from pretrain.config.settings import LayerDropSettings

# What Markdown, HTML, tables, formulas, addresses or lists begin with. As references to characters
# they have no effect; backslashes would begin formulas on the Hub. "_" within a word is none of
# these.
_MARKUP = re.compile(
    r"[&<>\[\]*`~|\\$#@]|:(?=//)|(?<=www)\.|(?<![^\W_])_|_(?![^\W_])"
    r"|^[-+](?=\s|$)|^[0-9](?=[0-9]{0,8}[.)](?:\s|$))",
    re.IGNORECASE,
)

# An absolute path up to its last part, of which a home may be the only folder; not the address of a
# page. A label before it is no scheme: `source:/home/me/x`. `~a/b` is about a ratio, and no home.
_PART = r"(?:[^\s/:\"'|,;<>()]+/)"
_FOLDERS = re.compile(
    rf"(?i:\bfile:(?://[\w.-]*)?)/{_PART}*|(?<![\w./~])~[A-Za-z_][\w.-]+/{_PART}*"
    rf"|(?<![\w./~])(?!//)(?:~|\.\.)?/{_PART}+"
)

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


def without_folders(text: str) -> str:
    """Return the text with absolute paths cut to their last part."""
    return _FOLDERS.sub("", text)


def plain_text(value: Any) -> str:
    """Return a name or a sentence on one line, without folders, and without effect in Markdown."""
    return _inert(" ".join(without_folders(str(value)).split()))


def quoted_text(value: str) -> str:
    """Return a label or the name of a column in quotes, as it is written."""
    return _inert(json.dumps(value, ensure_ascii=False))


def _inert(text: str) -> str:
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", text)


def shown_place(folder: Path) -> str:
    """Return what examples call the folder of the card: of an absolute path the name."""
    return folder.name if folder.is_absolute() else str(folder)


def layer_drop_phrase(drop: LayerDropSettings) -> str:
    """Return the schedule and its keep ratios."""
    if drop.schedule == "none":
        return drop.schedule
    if drop.schedule == "stages":
        return f"stages {', '.join(f'{share:.3g}' for share in drop.stages)}"
    word = {"constant": "at", "reverse": "from", "linear_up": "from"}.get(drop.schedule, "to")
    return f"{drop.schedule} {word} {drop.theta_bar:g}"
