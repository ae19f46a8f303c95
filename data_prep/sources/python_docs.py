"""English prose from the docstrings of the installed Python: a corpus that needs no network.

Modules are parsed, not imported. About half of the text is code: only paragraphs that read as
sentences are kept, without examples, literal blocks, headings and type annotations.
"""

import ast
import gc
import importlib.metadata
import inspect
import itertools
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_prep.files.quoting import is_unicode
from data_prep.sources.source import (
    BEGINNING,
    Parsed,
    Position,
    RawDocument,
    Skipped,
    Source,
    file_size,
)

# Docstrings of tests are fragments, vendored copies repeat other packages, site-packages is a root
# of its own; the last three belong to this project.
SKIPPED_FOLDERS = frozenset(
    ("test", "tests", "testing", "idle_test", "lib2to3", "site-packages", "dist-packages")
    + ("_vendor", "vendor", "vendored", "data_prep", "pretrain", "finetune")
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
_WORD = re.compile(r"[\"'(]*(?:[A-Za-z]+(?:['’/-][A-Za-z]+)*|\d+)[\"')]*[,.;:!?]*[\"')]*")


@dataclass(frozen=True)
class PythonDocs(Source):
    """The prose of the installed modules, a document each.

    They are ordered by their paths relative to the root, so that the same installation gives the
    same text wherever it is. Files that this Python cannot read or parse are skipped.
    """

    roots: tuple[Path, ...] = ()

    @property
    def description(self) -> str:
        """Return the version of Python and the number of packages."""
        num_packages = len(_packages())
        python = platform.python_version()
        return f"docstrings of Python {python} and {num_packages} installed packages"

    @property
    def licence(self) -> str:
        """Return whose licences apply."""
        return "those of Python and of the installed packages"

    @property
    def num_bytes(self) -> int:
        """Return the size of all modules."""
        return sum(file_size(file) for file in self._files())

    def identity(self) -> list[list[object]]:
        """Return the versions of Python and of all packages."""
        return [[platform.python_version(), *sorted(_packages())]]

    def raw_documents(self, start: Position = BEGINNING) -> Iterator[RawDocument | Skipped]:
        """Yield the path of each module."""
        read_bytes = 0
        for number, file in enumerate(self._files(), start=1):
            read_bytes += file_size(file)
            if number > start.record:
                yield RawDocument(str(file), str(file), 1, Position(0, number), read_bytes)

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of a module's docstrings that read as prose."""
        # Syntax trees hold no cycles, and the collector walking them doubles the time of parsing.
        gc.disable()
        try:
            docstrings = list(_docstrings(Path(raw.content)))
        finally:
            gc.enable()
        paragraphs = (text for docstring in docstrings for text in prose(docstring))
        # Escapes in the sources can name unpaired surrogates.
        return Parsed([text for text in paragraphs if is_unicode(text)], [])

    def _files(self) -> list[Path]:
        return [file for root in self.roots or _installed_roots() for file in _module_files(root)]


def prose(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring that read as English, one line each."""
    for block in _blocks(inspect.cleandoc(docstring)):
        text = _FIELD.sub("", " ".join(" ".join(block).split()), count=1)
        text = (
            _FOOTNOTE.sub("", _LINK.sub(r"\1", _ROLE.sub(r"\1", text)))
            .replace("`", "")
            .replace("::", ":")
        )
        text = _NAME.sub("", text)
        if _reads_as_prose(text):
            yield text


def _packages() -> list[str]:
    return [f"{package.name} {package.version}" for package in importlib.metadata.distributions()]


def _installed_roots() -> list[Path]:
    paths = sysconfig.get_paths()
    names = (paths["stdlib"], paths["purelib"], paths["platlib"])
    return list(dict.fromkeys(Path(name).resolve() for name in names))


def _module_files(root: Path) -> list[Path]:
    found = [
        file.relative_to(root)
        for file in root.rglob("*.py")
        if SKIPPED_FOLDERS.isdisjoint(file.relative_to(root).parts)
    ]
    return [root / file for file in sorted(found, key=Path.as_posix)]


def _docstrings(file: Path) -> Iterator[str]:
    try:
        content = file.read_bytes()
        if b'"""' not in content and b"'''" not in content:
            return  # about 2,700 of 12,000 files need no parsing
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(content)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    yield from _docstrings_below(tree)


def _docstrings_below(node: ast.AST) -> Iterator[str]:
    """Yield the docstrings of a statement and of those inside it, in the order of the source."""
    match node:
        case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield ast.get_docstring(node, clean=False) or ""
        case ast.Expr(value=ast.Call(args=arguments)):
            # torch and numpy document their compiled functions as add_docstr(function, text).
            yield from (
                argument.value
                for argument in arguments
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            )
    for field in ("body", "orelse", "handlers", "finalbody"):
        children = node.__dict__.get(field, [])
        for child in children if isinstance(children, list) else []:
            yield from _docstrings_below(child)


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


def _reads_as_prose(text: str) -> bool:
    """Return whether a paragraph reads as English: at least 4 words in 5 are plain ones.

    It must start with a letter, and end like a sentence or have at least 8 words: many authors
    leave out the full stop.
    """
    words = text.split()
    ends = text.endswith((".", "!", "?", ":")) or len(words) >= 8
    if len(words) < 4 or not text[0].isalpha() or not ends:
        return False
    return sum(_WORD.fullmatch(word) is not None for word in words) >= 0.8 * len(words)
