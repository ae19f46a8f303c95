"""Files as an attacker or a broken disk might leave them, drawn by hypothesis."""

import copy
import json
import re

from hypothesis import strategies as st

# Values that a reader expects nowhere, or that are out of every range.
NASTY = (
    *(None, True, False, [], {}, [[]], [1, 2], {"a": 1}, [None], {"": {}}),
    *(-1, 0, 1, 3, 2**31, 2**63, 10**18, 10**30, -(2**63), 0.5, -0.0, 1e308, 1e-320),
    *(float("inf"), float("nan"), "", " ", "12", "none", "nan", "..", "../x", "/etc/passwd"),
    *("a\\b", "a\0b", "x" * 10_000, "two\nlines", "\x1b[31m", "<script>alert(1)</script>"),
    *(r"$\frac$", "{{ 7 * 7 }}", "\ud800", "é" * 300, ";".join("abcdef")),
)

# Python writes none of these: they stand for what is put into the text afterwards.
RAW = {
    "@deep": "[" * 100_000 + "]" * 100_000,
    "@deep objects": '{"a":' * 900 + "1" + "}" * 900,
    "@level": "[" * 70 + "]" * 70,
    "@digits": "9" * 5000,
    "@overflow": "1e400",
    "@infinite": "-Infinity",
    "@bare": "undefined",
    "@half": '"\\ud83d"',
}

TOML_VALUES = (
    *("true", "-1", "0", "1e400", "nan", "inf", "-0.0", "''", '"none"', '"../x"', '"/etc/passwd"'),
    *("[]", "{}", "[1, 2]", "{ a = 1 }", "1979-05-27T07:32:00Z", "0x" + "f" * 5000, "9" * 5000),
    *(
        "[" * 2000 + "]" * 2000,
        '"' + "x" * 10_000 + '"',
        '"\\u0000"',
        '"a\\nb"',
        "9223372036854775808",
    ),
)


def places(tree, here=()):
    """Yield the path of everything in a tree, outer things first."""
    yield here
    if isinstance(tree, dict | list):
        for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(child, (*here, key))


def at(tree, place):
    for key in place:
        tree = tree[key]
    return tree


def put(tree, place, value):
    """Return the tree with another value in a place."""
    if not place:
        return value
    at(tree, place[:-1])[place[-1]] = value
    return tree


@st.composite
def mutated_trees(draw, tree):
    """JSON trees that differ from a good one in one to three places."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        every = list(places(tree))
        place = draw(st.sampled_from(every))
        kind = draw(st.sampled_from(["replace", "raw", "drop", "rename", "twice", "swap", "copy"]))
        parent = at(tree, place[:-1]) if place else None
        if kind == "raw":
            tree = put(tree, place, draw(st.sampled_from(sorted(RAW))))
        elif kind == "drop" and place:
            del parent[place[-1]]
        elif kind == "rename" and isinstance(parent, dict):
            name = draw(st.sampled_from(["", "x", "..", "extra", place[-1].upper(), "\ud800"]))
            parent[name] = parent.pop(place[-1])
        elif kind == "twice" and isinstance(parent, dict):
            parent[f"@twice {place[-1]}"] = copy.deepcopy(draw(st.sampled_from(NASTY)))
        elif kind == "swap":
            other = draw(st.sampled_from(every))
            first, second = copy.deepcopy(at(tree, place)), copy.deepcopy(at(tree, other))
            if place[: len(other)] != other and other[: len(place)] != place:
                tree = put(put(tree, place, second), other, first)
        elif kind == "copy" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[place[-1]]))
        else:
            tree = put(tree, place, copy.deepcopy(draw(st.sampled_from(NASTY))))
    return tree


def json_text(tree):
    """Write a tree as JSON, with keys that are there twice and what Python would not write."""
    text = json.dumps(tree).replace('"@twice ', '"')
    for name, raw in RAW.items():
        text = text.replace(json.dumps(name), raw)
    return text


def mutated_json(content):
    """JSON texts that differ from a good one in what they say, or as bytes."""
    trees = mutated_trees(json.loads(content)).map(lambda tree: json_text(tree).encode())
    return st.one_of(trees, trees, mutated_bytes(content))


@st.composite
def mutated_lines(draw, content):
    """JSON Lines of which one is mutated, or that are in another order."""
    lines = content.splitlines(keepends=True)
    place = draw(st.integers(0, len(lines) - 1))
    kind = draw(st.sampled_from(["line", "line", "line", "order", "drop", "blank", "bytes"]))
    if kind == "line":
        lines[place] = draw(mutated_json(lines[place].strip())) + b"\n"
    elif kind == "order":
        lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(place))
    elif kind == "drop":
        del lines[place]
    elif kind == "blank":
        lines.insert(place, draw(st.sampled_from([b"\n", b"\r\n", b"[]\n", b"null\n", b"7\n"])))
    else:
        return draw(mutated_bytes(content))
    return b"".join(lines)


@st.composite
def mutated_bytes(draw, content, *, first=0):
    """Bytes that differ from good ones by one to three blows, from byte `first` on."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(min(first, len(content)), len(content)))
        length = draw(st.sampled_from([1, 2, 4, 8, 64, 512]))
        kind = draw(st.sampled_from(["flip", "set", "cut", "insert", "zero", "repeat", "remove"]))
        if kind == "flip" and place < len(content):
            content[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set":
            content[place : place + length] = draw(st.sampled_from([b"\xff", b"\x80", b"\x7f"])) * (
                min(length, len(content) - place)
            )
        elif kind == "cut":
            del content[place:]
        elif kind == "insert":
            content[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "zero":
            content[place : place + length] = bytes(min(length, len(content) - place))
        elif kind == "repeat":
            content[place:place] = content[place : place + length]
        else:
            del content[place : place + length]
    return bytes(content)


@st.composite
def mutated_toml(draw, content):
    """TOML of which a line is dropped, doubled, or has another value, or other bytes."""
    if draw(st.integers(0, 3)) == 0:
        return draw(mutated_bytes(content.encode()))
    lines = content.splitlines()
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lines) - 1))
        name, equals, _ = lines[place].partition("=")
        kind = draw(
            st.sampled_from(["value", "value", "value", "drop", "double", "move", "rename"])
        )
        if kind == "value" and equals:
            lines[place] = f"{name}= {draw(st.sampled_from(TOML_VALUES))}"
        elif kind == "drop" and len(lines) > 1:
            del lines[place]
        elif kind == "double":
            lines.insert(place, lines[place])
        elif kind == "move":
            lines.insert(draw(st.integers(0, len(lines))), lines.pop(place))
        else:
            lines[place] = re.sub(
                r"\w+", draw(st.sampled_from(["extends", "x", "name"])), lines[place], count=1
            )
    return "\n".join(lines).encode() + b"\n"
