"""English prose from the triple-quoted strings of the installed modules: needs no network.

Nearly all of them are docstrings; the others document attributes and compiled functions. Modules
are neither imported nor parsed: one regular expression finds the strings twenty times sooner than
`ast`. About half of their text is code: only paragraphs that read as sentences are kept, without
examples, literal blocks, headings and type annotations.
"""

import ast
import contextlib
import importlib.metadata
import inspect
import itertools
import os
import platform
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.files.quoting import is_unicode
from data_prep.sources.source import BEGINNING, Document, Position, Source, file_size

# An unfinished build that read something else of the same installation is not continued: change
# this with what is read.
READING = "triple-quoted strings"

# Docstrings of tests are fragments, vendored copies repeat other packages, site-packages is a root
# of its own; the last four belong to this project.
SKIPPED_FOLDERS = frozenset(
    ("test", "tests", "testing", "idle_test", "lib2to3", "site-packages", "dist-packages")
    + ("_vendor", "vendor", "vendored", "data_prep", "pretrain", "finetune", "tupelo")
)

# Comments and strings in the order of the source, so that quotes in one of them begin no other.
# Groups: the content of a triple-quoted string. Every alternative begins with a single character,
# and where a string goes on is never ambiguous: 200 MB take a second or two. (Possessive groups
# find nothing in Python 3.11.0 to 3.11.4.)
_COMMENT_OR_STRING = re.compile(
    r"""
    \#.*
    | \"""  ( [^"\\]* (?: (?: \\[\s\S] | "(?!"") ) [^"\\]* )* )  \"""
    | '''  ( [^'\\]* (?: (?: \\[\s\S] | '(?!'') ) [^'\\]* )* )  '''
    | " [^"\\\n]* (?: \\[\s\S] [^"\\\n]* )* "
    | ' [^'\\\n]* (?: \\[\s\S] [^'\\\n]* )* '
    """,
    re.VERBOSE,
)

_BULLET = re.compile(r"\s*(?:[-*+•]|\d+[.)]|\(\w\))\s+")
_SECTION = re.compile(r"\w+:")  # Google: "Args:", "Returns:" or the name of a field
_UNDERLINE = re.compile(r"([-=~^\"'*#`+.])\1{2,}$")
_ADMONITION = re.compile(r"\.\. (?:note|tip|important|warning|caution)::")
# Google style: "name (type): text"; the type may hold one more level of parentheses.
_FIELD = re.compile(r"[\w.`*]+(?:, [\w.`*]+)* ?\((?:[^()]|\([^()]*\))*\) ?:(?: +|$)")
_NAME = re.compile(r"^[a-z_*][\w.*]* ?: +(?=\w)")  # "name: text", of a parameter or a type
_ROLE = re.compile(r":[a-z][a-z:+-]*:`[~!]?([^`<]*?)(?: <[^`]*>)?`")  # Sphinx: ":class:`name`"
_LINK = re.compile(r"`([^`<]+?) ?<[^`>]*>`__?")  # reStructuredText: "`text <address>`_"
_FOOTNOTE = re.compile(r" ?\[[\w*#]+\]_")
_WORD = re.compile(
    r"(?<!\S)[\"'(]*+(?:[A-Za-z]++(?:['’/-][A-Za-z]++)*|\d++)[\"')]*+[,.;:!?]*+[\"')]*+(?!\S)"
)


@dataclass(frozen=True)
class PythonDocs(Source):
    """The prose of the installed modules, a document each.

    They are ordered by their paths relative to the root, so that the same installation gives the
    same text wherever it is. Files that cannot be read or decoded are skipped.
    """

    licence = "those of Python and of the installed packages"

    @property
    def description(self) -> str:
        """Return the version of Python and the number of packages."""
        num_packages = len(self._packages())
        python = platform.python_version()
        return f"{READING} of Python {python} and {num_packages} installed packages"

    @property
    def num_bytes(self) -> int:
        """Return the size of all modules."""
        return sum(file_size(file) for file in self._files())

    def identity(self) -> list[list[object]]:
        """Return what is read, and the versions of Python and of all packages."""
        return [[READING, platform.python_version(), *self._packages()]]

    def read(self, start: Position = BEGINNING) -> Iterator[Document]:
        """Yield the path of each module."""
        read_bytes = 0
        for number, file in enumerate(self._files(), start=1):
            read_bytes += file_size(file)
            if number > start.record:
                yield Document(str(file), str(file), 1, read_bytes, end=Position(0, number))

    def paragraphs(self, document: Document) -> list[str]:
        """Return the paragraphs of a module's docstrings that read as prose."""
        try:
            with tokenize.open(document.text) as stream:
                strings = triple_quoted(stream.read())
        except (OSError, SyntaxError, ValueError):  # of the disk, an unknown encoding, a wrong one
            return []
        # Escapes in the sources can name unpaired surrogates.
        return [text for string in strings for text in prose(string) if is_unicode(text)]

    def _files(self) -> list[Path]:
        found = []
        for root in _installed_roots():
            modules = []
            for folder, folders, files in os.walk(root):
                folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
                modules += [Path(folder, name) for name in files if name.endswith(".py")]
            found += sorted(modules, key=Path.as_posix)
        return found

    def _packages(self) -> list[str]:
        # Not those of sys.path: importing setuptools adds its vendored packages to it.
        found = importlib.metadata.distributions(path=[str(root) for root in _installed_roots()])
        return sorted(f"{package.name} {package.version}" for package in found)


def triple_quoted(source: str) -> list[str]:
    """Return the values of the triple-quoted strings of a module, in order.

    Bytes and templates (f, t) are left out, and strings with an escape that Python refuses. A
    source that does not parse gives whatever looks like a string.
    """
    values = []
    with warnings.catch_warnings(action="ignore"):  # of unknown escapes, such as "\d"
        for match in _COMMENT_OR_STRING.finditer(source):
            if match.lastindex is None:
                continue
            start, content = match.start(), match[match.lastindex]
            prefix = source[max(0, start - 2) : start].lower()
            if prefix.endswith(("b", "f", "t", "br", "fr", "tr")):
                continue
            if "\\" in content and not prefix.endswith("r"):
                with contextlib.suppress(SyntaxError, ValueError):
                    values.append(ast.literal_eval(match[0]))
            else:
                values.append(content)
    return values


def prose(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring that read as English, one line each."""
    for block in _blocks(inspect.cleandoc(docstring)):
        text = " ".join(" ".join(block).split())
        # Few paragraphs have these marks, and a search for the patterns takes longer.
        if "):" in text or ") :" in text:
            text = _FIELD.sub("", text, count=1)
        if "`" in text:
            text = _LINK.sub(r"\1", _ROLE.sub(r"\1", text)).replace("`", "")
        if "]_" in text:
            text = _FOOTNOTE.sub("", text)
        text = " ".join(_NAME.sub("", text.replace("::", ":")).split())
        # It reads as English where 4 words in 5 are plain ones, it starts with a letter, and ends
        # like a sentence or has 8 words: many authors leave out the full stop.
        words = text.split()
        ends = text.endswith((".", "!", "?", ":")) or len(words) >= 8
        begins = len(words) >= 4 and text[0].isalpha()
        if begins and ends and len(_WORD.findall(text)) >= 0.8 * len(words):
            yield text


def _installed_roots() -> tuple[Path, ...]:
    names = map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))
    return tuple(dict.fromkeys(Path(name).resolve() for name in names))


def _blocks(docstring: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph, list item or field."""
    block: list[str] = []
    block_indent = 0
    for line in itertools.chain(_without_code(docstring), [""]):
        text = line.strip()
        bullet = _BULLET.match(line)
        indent = bullet.end() if bullet else len(line) - len(line.lstrip())
        if _UNDERLINE.fullmatch(text):
            block = []  # the line above is a heading
            continue
        ends = not text or bullet or indent != block_indent
        if block and (ends or _FIELD.match(text) or _SECTION.fullmatch(text)):
            yield block
            block = []
        if text and not _SECTION.fullmatch(text):
            block.append(line[indent:].rstrip())
            block_indent = indent


def _without_code(docstring: str) -> Iterator[str]:
    """Yield the lines, with those of examples, fenced and literal blocks blanked."""
    fenced = example = False
    literal_indent: int | None = None
    for line in docstring.splitlines():
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text and literal_indent is not None and indent <= literal_indent:
            literal_indent = None
        is_fence = text.startswith(("```", "~~~"))
        fenced ^= is_fence
        example = bool(text) and (example or text.startswith((">>>", "$ ")))
        hidden = fenced or is_fence or example or literal_indent is not None
        yield "" if hidden else line
        opens_literal = text.startswith(".. ") or text.endswith("::")
        if not hidden and opens_literal and not _ADMONITION.match(text):
            literal_indent = indent
