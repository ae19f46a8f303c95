"""What the name of a run, a file or a folder cannot do: forge output, links or commands."""

import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCardData
from markdown_it import MarkdownIt

from data_prep.files.errors import UserError
from data_prep.files.program import run_program
from pretrain.convert.exports.model_card import (
    CARD_FILE,
    card_table,
    plain_text,
    save_card,
    without_folders,
)

HOSTILE = [
    "a <script>x</script>\n# heading | cell ```",
    "[text](https://example.org) ![picture](https://example.org/a.png) [a]: https://example.org",
    "*a* **b** _c_ __d__ ~~e~~ `f` ~f~ x*y*z",
    "<https://example.org> <me@example.org> &lt;b&gt; \\[a](b) \\",
    "a\n\n- item\n\n    code\n\n---\n<!-- hidden -->",
    "tupe_r_pld, 2_000, snake_",
    *("- item", "+ item", "1. item", "123456789) item", "- 2. + item", "-1.5 +2 3.x"),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_shows_a_name_as_it_is(name):
    """Read by a parser of CommonMark: a heading and a table hold code only."""
    expected = " ".join(name.split()).replace("`", "'").replace("|", "/")
    text = f"# {plain_text(name)}\n\n{card_table([['source', name]])}\n"
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    heading, *cells = [token.children for token in tokens if token.type == "inline"]
    assert len(cells) == 4
    for children in (heading, cells[-1]):
        assert [(one.type, one.content) for one in children] == [("code_inline", expected)]


def test_a_place_stays_a_word_of_the_code(tmp_path):
    place = 'runs/"x"\n```\n<script>'
    fields = {"kind": "fill-mask", "tables": {}, "has_own_code": False, "name": "a\n# b: c"}
    save_card(tmp_path, ModelCardData(), place=Path(place), **fields)
    card = (tmp_path / CARD_FILE).read_text()
    (line,) = re.findall(r"^place = .*", card.partition("Hidden states")[0], re.M)
    found = {}
    exec(line, found)
    assert found["place"] == place and "\n# `a # b: c`\n" in card


@pytest.mark.parametrize(
    ("raised", "line"),
    [
        (UserError("a\nwarning: b\x1b[2K\r.txt: é"), r"error: a\nwarning: b\x1b[2K\r.txt: é"),
        (MemoryError(), "error: the memory of this machine, or its limit, is used up"),
    ],
)
def test_an_error_is_one_line_whatever_a_file_is_called(raised, line):
    def fails(_):
        raise raised

    with pytest.raises(SystemExit) as ended:
        run_program(fails)
    message = str(ended.value)
    assert message.startswith(line) and len(message.splitlines()) == 1 and message.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/texts/wiki.txt (1 file)", "wiki.txt (1 file)"),
        (
            '"corpus": ["text:/home/me/a b/wiki.txt:weight=2"]',
            '"corpus": ["text:a b/wiki.txt:weight=2"]',
        ),
        ("~/texts/wiki.txt, ../more/x.txt", "wiki.txt, x.txt"),
        ("https://example.org/a/b and runs/x/y", "https://example.org/a/b and runs/x/y"),
        ("text:~bob/texts/wiki.txt, ~bob/wiki.txt", "text:wiki.txt, wiki.txt"),
        ("about ~5/10, a~b/c, ratio ~a/b", "about ~5/10, a~b/c, ratio ~a/b"),
        ("profile:/home/me/x, see profile:/a/b", "profile:x, see profile:b"),
    ],
)
def test_folders_of_the_machine_are_left_out(text, shown):
    assert without_folders(text) == shown
