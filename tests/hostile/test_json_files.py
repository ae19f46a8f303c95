"""How JSON of others is read, and how values are quoted in messages."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.files.quoting import quoted
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_lines
from tests.hostile.property import few

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@few()
@given(TREES)
def test_what_python_writes_is_read_back(tmp_path_factory, tree):
    file = tmp_path_factory.getbasetemp() / "tree.jsonl"
    written = {"tree": tree, "numbers": [math.inf, -math.inf, 0.1]}
    file.write_text(f"{json.dumps(written)}\n")
    assert read_json_lines(file) == [written]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a":' * 900 + b"1" + b"}" * 900, "recursion limit exceeded"),
        (b"9" * 5000, "number out of range"),
        (b'["\\ud800"]', "unexpected end of hex escape"),
        (b'"\xff"', "invalid unicode code point at line 1 column 2"),
        (b"undefined", "expected value"),
        (b"[1]", "not a JSON object"),
    ],
)
def test_ambiguous_or_unbounded_json_is_refused(tmp_path, content, reason):
    (tmp_path / "lines.jsonl").write_bytes(content + b"\n")
    with pytest.raises(ConfigError, match=f"line 1 of .* is damaged: {reason}"):
        read_json_lines(tmp_path / "lines.jsonl")


@few()
@given(TREES | st.binary() | st.text() | st.floats() | st.integers(-(1 << 20000), 1 << 20000))
def test_any_value_is_shown_in_one_short_line(value):
    text = quoted(value)
    assert text.isprintable() and 0 < len(text) <= 400 or not text


def test_short_values_are_shown_as_they_are():
    for value in (1, -5, "a", "it's", None, True, [1, "b"], {"a": 1}, 0.5):
        assert quoted(value) == repr(value)
    assert quoted("x" * 200) == f"'{'x' * 37}...{'x' * 37}'"
    assert quoted(1 << 20_000) == "a value of type int, too long to show"
