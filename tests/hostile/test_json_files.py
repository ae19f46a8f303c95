"""The strict JSON reader, and how values are quoted in messages."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.files.quoting import quoted
from data_prep.files.strict_json import JsonError, json_in
from tests.hostile.property import few

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@few()
@given(TREES)
def test_what_python_writes_is_read_back(tree):
    assert json_in(json.dumps(tree).encode()) == tree
    assert json_in(b"[Infinity, 1e400]") == [math.inf, math.inf]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1, "a": 2}', "the key 'a' is repeated"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "recursion limit exceeded"),
        (b"[" * 1_000_000, "recursion limit exceeded"),
        (b"9" * 5000, "number out of range"),
        (b'["\\ud800"]', "unexpected end of hex escape"),
        (b'"\xff"', "invalid unicode code point at line 1 column 2"),
        (b"undefined", "expected value"),
        (b'"\n"', "^control character .* found while parsing a string at line 2 column 0$"),
    ],
)
def test_ambiguous_or_unbounded_json_is_refused(content, reason):
    with pytest.raises(JsonError, match=reason):
        json_in(content)


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
