"""Tables in a given width, read back line by line."""

import os

import pytest

from pretrain.reports.table import Table, as_csv
from pretrain.reports.words import WIDEST, terminal_width

HEADERS = ["arm", *(f"column {n}" for n in range(9)), "differences"]
ROWS = [
    [f"arm_{row}", *(f"{row}.{n} k" for n in range(9)), f"setting_{row} before -> after"]
    for row in range(3)
]


def table_of(headers, rows, **options):
    return Table("", [dict(zip(headers, row, strict=True)) for row in rows], **options)


def parts_of(text):
    return [part.split("\n") for part in text.split("\n\n")]


@pytest.mark.parametrize("width", [40, 200])
def test_every_cell_is_shown_whole_and_no_line_is_wider_than_the_terminal(width):
    text = table_of(HEADERS, ROWS, text=["differences"]).as_text(width)
    assert max(map(len, text.split("\n"))) <= width
    for cell in [*HEADERS, *(cell for row in ROWS for cell in row[:-1])]:
        assert cell in text
    parts = parts_of(text)
    assert (len(parts) == 1) is (width == 200)
    for lines in parts:
        assert lines[0].startswith("arm") and "arm_2" in "\n".join(lines)
    found = [word for word in text.split() if word.startswith("setting_")]
    assert found == ["setting_0", "setting_1", "setting_2"]


def test_a_cell_stands_below_its_header():
    (lines,) = parts_of(table_of(["arm", "steps"], [["a", "7"], ["b", "1,600"]]).as_text(80))
    assert lines == ["arm  steps", "---  -----", "a        7", "b    1,600"]


def test_parts_repeat_all_columns_that_name_a_row():
    table = table_of(["model", "steps", *"abc"], [["m", "10", *["50.0 - 60.0"] * 3]], keys=2)
    parts = parts_of(table.as_text(32))
    assert [lines[2].split()[:2] for lines in parts] == [["m", "10"]] * 3


def test_a_name_that_is_shown_forges_nothing():
    """Neither lines, markup and lengths of a document, nor the colours of a terminal."""
    name = "\x1b[2Ja\u202eb|<b>\r[50cm] $x_1$"
    table = table_of(["arm", name], [[name, "7"], ["x\ny", "8"]])
    first, _, *rows = table.as_markdown().splitlines()
    assert first == r"| arm | ?\[2Ja?b\|\<b> \[50cm] $x_1$ |" and rows[1] == "| x (y) | 8 |"
    latex = table.as_latex(["a\n\\input{x}"])
    assert r"?{[}2Ja?b|<b>?{[}50cm] \$x\_1\$ & 7 \\" in latex.splitlines()
    assert r"% a \input{x}" in latex.splitlines()
    assert not {"\x1b", "\u202e", "\r"} & {*latex, *table.as_text(80), *as_csv(table.rows)}


def test_the_width_is_that_of_the_terminal_within_bounds(monkeypatch):
    for columns, expected in (("80", 80), ("100", 100), ("500", WIDEST)):
        monkeypatch.setitem(os.environ, "COLUMNS", columns)
        assert terminal_width() == expected
