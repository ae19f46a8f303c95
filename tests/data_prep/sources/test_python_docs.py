import ast
import contextlib
import io
import random
import textwrap
import tokenize

import pytest

from data_prep.sources import python_docs
from data_prep.sources.python_docs import PythonDocs, prose, triple_quoted

MODULE = '''
"""Move boats across the river.

The boats are moved one after the other,
never two of them at once::

    move(boats)

>>> move(3)
'three boats have moved across the river today.'

Notes
-----
A boat that leaks is left where it is, see :func:`~river.repair`.

Args:
    boats (list[Boat], optional): The boats that shall be moved.
    speed:
        How fast they go in the beginning.

- The first item is a sentence as well.

.. math:: x = y + 1
.. note::
    Bridges are of no interest to this module.

:param int x: The parameter is described here.
====  ====
x_1 = f(y_2) + g(z_3) * 4.
"""


class Boat:
    """A boat knows where it is."""

    def move(self):
        """Move the boat to the other bank."""
        if self:
            def inner():
                "This one is not in triple quotes."
        raise ValueError("A message of this module is no documentation.")

    length: int
    """Length of the boat in the water."""


add_docstr(Boat.sink, r"""
    Sink the boat without any warning.
""")
'''

PROSE = [
    "Move boats across the river.",
    "The boats are moved one after the other, never two of them at once:",
    "A boat that leaks is left where it is, see river.repair.",
    "The boats that shall be moved.",
    "How fast they go in the beginning.",
    "The first item is a sentence as well.",
    "Bridges are of no interest to this module.",
    "A boat knows where it is.",
    "Move the boat to the other bank.",
    "Length of the boat in the water.",
    "Sink the boat without any warning.",
]


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def installation(tmp_path):
    write(tmp_path / "river" / "boats.py", MODULE)
    write(tmp_path / "river" / "again.py", '"""Move boats across the river."""')
    write(tmp_path / "river" / "tests" / "boats.py", '"""This is a test of the boats."""')
    write(tmp_path / "broken.py", '"""This file does not parse."""\ndef """It does not end.')
    latin = "# coding: latin-1\n'''The café on the river is open.'''"
    (tmp_path / "latin.py").write_bytes(latin.encode("latin-1"))
    (tmp_path / "wrong.py").write_bytes('"""This café is not in UTF-8."""'.encode("latin-1"))
    write(tmp_path / "zoo.py", '"""Animals are kept in the zoo."""\nraise SystemExit')
    return tmp_path


def documents(root):
    source = PythonDocs("python-docs", 1.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(python_docs, "_installed_roots", lambda: [root])
        return [source.paragraphs(document) for document in source.read()]


def test_docstrings_are_read_in_order_without_code(installation):
    assert documents(installation / "river") == [PROSE[:1], PROSE]


def test_tests_are_left_out_and_files_that_cannot_be_decoded_hold_nothing(installation):
    assert documents(installation) == [
        ["This file does not parse."],
        ["The café on the river is open."],
        PROSE[:1],
        PROSE,
        [],
        ["Animals are kept in the zoo."],
    ]


def by_tokenize(source):
    """Return the triple-quoted strings that Python's own tokenizer finds."""
    values = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        literal = token.string.lstrip("rRbBuUfFtT")
        prefix = token.string.removesuffix(literal).lower()
        is_triple = token.type == tokenize.STRING and literal.startswith(('"""', "'''"))
        if is_triple and not set(prefix) & set("bft"):
            values.append(ast.literal_eval(token.string))
    return values


@pytest.mark.filterwarnings("ignore")
def test_random_statements_give_the_strings_that_tokenize_finds():
    numbers = random.Random(0)
    statements = []
    while len(statements) < 150:
        prefix = numbers.choice(["", "r", "u", "b", "f", "Rb"])
        quotes = numbers.choice(['"', "'", '"""', "'''"])
        content = "".join(numbers.choices(['"', "'", "\\", "\n", "#", "a", " ", "x41", "'''"], k=8))
        statement = f"x = {prefix}{quotes}{content}{quotes}  # {content.splitlines()[0]}\n"
        with contextlib.suppress(SyntaxError):
            ast.parse(statement)
            statements.append(statement)
    assert sum(len(by_tokenize(statement)) for statement in statements) > 25
    for source in [*statements, "".join(statements)]:
        assert triple_quoted(source) == by_tokenize(source), source


def test_an_escape_that_python_refuses_costs_one_string():
    assert triple_quoted('x = """\\N{NO SUCH NAME}"""\ny = """A boat."""\n') == ["A boat."]


def test_fenced_code_and_fields_in_running_text_are_left_out():
    docstring = textwrap.dedent("""\
        Use it like this example shows.
        ```python
        This line is code though it reads like prose.
        ```
        Returns:
        `bool`: Whether the thing is in use.
        value (`torch.Tensor` of shape `(batch, length)`, *optional*): The values to be used.
        See :func:`` `the whole manual <https://example.org>`_ for much more [1]_.

        This line has neither a full stop nor any code in it

        no full stop here
        """)
    assert list(prose(docstring)) == [
        "Use it like this example shows.",
        "Whether the thing is in use.",
        "The values to be used. See the whole manual for much more.",
        "This line has neither a full stop nor any code in it",
    ]
