"""What a name cannot do to a model card."""

from pretrain.convert.exports.card_text import (
    card_table,
    plain_text,
    quoted_text,
    render_card,
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
