"""Files as an attacker or a broken disk might leave them, drawn by hypothesis."""

import copy
import json

from hypothesis import strategies as st

# Values that a reader expects nowhere, or that are out of every range.
NASTY = (
    *(None, True, [], {}, [[]], [1, 2], {"a": 1}, [None], {"": {}}),
    *(-1, 0, 3, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, float("inf"), float("nan")),
    *("", " ", "12", "none", "..", "../x", "/etc/passwd", "a\\b", "a\0b", "x" * 10_000),
    *("two\nlines", "\x1b[31m", "<script>alert(1)</script>", r"$\frac$", "{{ 7 * 7 }}", "\ud800"),
)

# Python writes none of these: they stand for what is put into the text afterwards.
RAW = {
    "@deep": "[" * 100_000 + "]" * 100_000,
    "@level": "[" * 150 + "]" * 150,
    "@digits": "9" * 5000,
    "@overflow": "1e400",
    "@bare": "undefined",
}

TOML_VALUES = (
    *("true", "-1", "0", "1e400", "nan", "-0.0", "''", '"none"', '"../x"', "[]", "{}", "[1, 2]"),
    *("{ a = 1 }", "1979-05-27T07:32:00Z", "9" * 5000, "[" * 2000 + "]" * 2000, '"a\\nb"'),
)


def places(tree, here=()):
    """Yield the path of everything in a tree, outer things first."""
    yield here
    if isinstance(tree, dict | list):
        for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(child, (*here, key))


@st.composite
def mutated_trees(draw, tree):
    """JSON trees that differ from a good one in one or two places."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(list(places(tree))))
        kind = draw(st.sampled_from(["replace", "raw", "drop", "rename", "twice"]))
        value = draw(st.sampled_from(sorted(RAW) if kind == "raw" else NASTY))
        if not place:
            tree = copy.deepcopy(value)
            continue
        parent, name = tree, place[-1]
        for key in place[:-1]:
            parent = parent[key]
        if kind == "drop":
            del parent[name]
        elif kind == "rename" and isinstance(parent, dict):
            parent[draw(st.sampled_from(["", "x", "..", "\ud800"]))] = parent.pop(name)
        elif kind == "twice" and isinstance(parent, dict):
            parent[f"@twice {name}"] = copy.deepcopy(value)
        else:
            parent[name] = copy.deepcopy(value)
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
    """JSON Lines of which one is mutated, moved, dropped or blank."""
    lines = content.splitlines(keepends=True)
    place = draw(st.integers(0, len(lines) - 1))
    kind = draw(st.sampled_from(["line", "line", "line", "order", "drop", "blank"]))
    if kind == "line":
        lines[place] = draw(mutated_json(lines[place].strip())) + b"\n"
    elif kind == "order":
        lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(place))
    elif kind == "drop":
        del lines[place]
    else:
        lines.insert(place, draw(st.sampled_from([b"\n", b"[]\n", b"null\n"])))
    return b"".join(lines)


@st.composite
def mutated_bytes(draw, content):
    """Bytes that differ from good ones by one or two blows."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(content)))
        end = place + draw(st.sampled_from([1, 4, 64, 512]))
        blow = draw(st.sampled_from(["set", "cut", "insert", "repeat", "remove"]))
        if blow == "set":
            content[place:end] = bytes([draw(st.integers(0, 255))]) * len(content[place:end])
        elif blow == "cut":
            del content[place:]
        elif blow == "insert":
            content[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif blow == "repeat":
            content[place:place] = content[place:end]
        else:
            del content[place:end]
    return bytes(content)


@st.composite
def mutated_toml(draw, content):
    """TOML of which a line is dropped, doubled, or has another value, or other bytes."""
    kind = draw(st.sampled_from(["bytes", "value", "value", "drop", "double"]))
    if kind == "bytes":
        return draw(mutated_bytes(content.encode()))
    lines = content.splitlines()
    place = draw(st.integers(0, len(lines) - 1))
    name, equals, _ = lines[place].partition("=")
    if kind == "value" and equals:
        lines[place] = f"{name}= {draw(st.sampled_from(TOML_VALUES))}"
    elif kind == "double":
        lines.insert(place, lines[place])
    else:
        del lines[place]
    return "\n".join(lines).encode() + b"\n"
