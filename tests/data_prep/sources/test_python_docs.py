import textwrap

import pytest

from data_prep.sources.python_docs import PythonDocs, prose

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
    "This one is not in triple quotes.",
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
    write(tmp_path / "broken.py", '"""This file does not parse."""\ndef')
    write(tmp_path / "zoo.py", '"""Animals are kept in the zoo."""\nraise SystemExit')
    return tmp_path


def documents(root):
    source = PythonDocs("python-docs", 1.0, roots=(root,))
    return [source.parse(raw).paragraphs for raw in source.raw_documents()]


def test_docstrings_are_read_in_order_without_code(installation):
    assert documents(installation / "river") == [PROSE[:1], PROSE]


def test_tests_are_left_out_and_broken_files_hold_nothing(installation):
    assert documents(installation) == [[], PROSE[:1], PROSE, ["Animals are kept in the zoo."]]


def test_fenced_code_and_fields_in_running_text_are_left_out():
    docstring = textwrap.dedent("""\
        Use it like this example shows.
        ```python
        This line is code though it reads like prose.
        ```
        Returns:
        `bool`: Whether the thing is in use.
        value (`torch.Tensor` of shape `(batch, length)`, *optional*): The values to be used.
        See `the whole manual <https://example.org>`_ for much more [1]_.

        This line has neither a full stop nor any code in it

        no full stop here
        """)
    assert list(prose(docstring)) == [
        "Use it like this example shows.",
        "Whether the thing is in use.",
        "The values to be used. See the whole manual for much more.",
        "This line has neither a full stop nor any code in it",
    ]
