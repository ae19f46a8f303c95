"""What a name cannot do to a model card."""

import pytest

from pretrain.convert.exports.card_text import (
    card_table,
    plain_text,
    quoted_text,
    render_card,
    without_folders,
)


def test_a_name_stays_a_name():
    hostile = "a <script>x</script>\n# heading | cell ```"
    assert plain_text(hostile) == "a &lt;script&gt;x&lt;/script&gt; # heading \\| cell '''"
    table = card_table([["source", hostile]], ["", ""])
    assert len(table.splitlines()) == 3 and "<script>" not in table


def test_labels_of_any_language_are_shown_as_they_are():
    assert quoted_text("好") == '"好"' and quoted_text("don't <b>") == '"don\'t &lt;b&gt;"'


def test_a_place_stays_a_word_of_the_code(tmp_path):
    template = tmp_path / "card.md.j2"
    template.write_text("# {{ name | plain }}\n```python\nplace = {{ place | python }}\n```\n")
    place = 'runs/"x"\n```\n<script>'
    card = render_card(template, name="a\n# b", place=place)
    heading, fence, code, end = card.splitlines()
    assert (heading, fence, end) == ("# a # b", "```python", "```")
    found = {}
    exec(code, found)
    assert found["place"] == place


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
        ("tokens/s, 1/2 and/or", "tokens/s, 1/2 and/or"),
    ],
)
def test_folders_of_the_machine_are_left_out(text, shown):
    assert without_folders(text) == shown
