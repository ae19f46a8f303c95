"""A dump of Wikipedia: pages-articles.xml as the Wikimedia Foundation publishes it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from data_prep.files.limited_process import Crashed, LimitedProcess, TookTooLong
from data_prep.sources.compression import DAMAGE, Stream, opened
from data_prep.sources.source import (
    DamagedFile,
    FileRecord,
    FileSource,
    Parsed,
    RawDocument,
    Skipped,
    paragraphs_of,
)

LONGEST_PAGE = 2_000_000  # characters; Wikipedia itself refuses more than 2 MB
# Processor time. An honest page takes a tenth of it, but the parser, an extension in C, can scan to
# the end of the page for each construct that is never closed: hours.
SECONDS_PER_PAGE, SECONDS_PER_CHARACTER = 5.0, 1 / 30_000
XML_BLOCK_BYTES = 1 << 16
MOST_NAMES = 1000  # of namespaces of files and categories, in one dump
DOCTYPE = b"<!DOCTYPE"
LONGEST_WAIT = 64 << 20  # bytes of XML without the end of a page: this is not a dump
NOT_AN_ARTICLE, REDIRECT = "not an article", "a redirect"  # reasons of `Skipped`
ARTICLES, FILES, CATEGORIES = "0", "6", "14"  # namespaces

# Markup that the parser would return as text, although it is not running text.
_DROPPED_TAGS = frozenset(
    ("ref", "references", "gallery", "table", "math", "chem", "code", "source", "syntaxhighlight")
    + ("timeline", "score", "imagemap", "templatestyles", "graph", "hiero", "style", "script")
)
_BREAKING_TAGS = frozenset(("br", "p", "div", "blockquote", "poem", "center", "dd", "dt", "li"))
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*(?:\s|$)|[。！？।؟]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")  # such as "&#xD800;"
_EMPTY_BRACKETS = re.compile(r"\(\s*[,;:\s]*\)|\[\s*\]")
_SPACE_BEFORE = re.compile(r"\s+([,.;:!?)])")


@dataclass(frozen=True)
class Page:
    """An article in wiki markup, with the prefixes of links to files and categories."""

    wikitext: str
    media: frozenset[str]

    def __len__(self) -> int:
        """Return its size in characters."""
        return len(self.wikitext)


@dataclass(frozen=True)
class WikipediaDump(FileSource):
    """Articles of a dump, without markup, tables, lists, headings and references."""

    kind = "Wikipedia dumps"
    expected_skips = FileSource.expected_skips | {NOT_AN_ARTICLE, REDIRECT}

    @property
    def licence(self) -> str:
        """Return Wikipedia's licence."""
        return "CC BY-SA 4.0 (Wikipedia)"

    def records(self, file: Path) -> Iterator[FileRecord | Skipped]:
        """Yield the articles; redirects and pages of other namespaces are skipped."""
        number = 0
        media = frozenset(("file", "image", "media", "category"))
        with opened(file) as (content, read_bytes):
            try:
                for element in _elements(content):
                    match _local_name(element.tag):
                        case "namespace" if element.get("key") in (FILES, CATEGORIES):
                            media |= {(element.text or "").casefold()}
                            if len(media) > MOST_NAMES:
                                raise ValueError(f"over {MOST_NAMES} names of namespaces")
                        case "page":
                            number += 1
                            found = _article(element)
                            if isinstance(found, str):
                                yield Skipped(str(file), number, found)
                            else:
                                yield FileRecord(Page(found[0], media), number, read_bytes())
            except (*DAMAGE, ElementTree.ParseError, ValueError, LookupError) as error:
                # ValueError, LookupError: the file names an encoding that the parser does not know.
                raise DamagedFile(number, error) from error

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of an article that hold sentences."""
        return next(self.parse_all([raw]))

    def parse_all(self, raw: Iterable[RawDocument]) -> Iterator[Parsed]:
        """Yield those of several articles; one that takes too long, or a crash, is skipped."""
        with LimitedProcess(plain_paragraphs) as process:
            for article in raw:
                reason, size = "page over 2 MB", len(article.content)
                if size <= LONGEST_PAGE:
                    seconds = SECONDS_PER_PAGE + SECONDS_PER_CHARACTER * size
                    try:
                        yield Parsed(process.call(article.content, seconds), [])
                        continue
                    except TookTooLong:
                        reason = "page whose markup takes too long"
                    except Crashed:
                        reason = "page whose markup crashes the parser"
                yield Parsed([], [Skipped(article.file, article.line, reason)])


def plain_paragraphs(page: Page) -> list[str]:
    """Return the running text of an article, paragraph by paragraph.

    Paragraphs without the end of a sentence are left out: headings, items of lists, captions.
    """
    import mwparserfromhell

    text = "".join(_read_parts(mwparserfromhell.parse(page.wikitext), page.media))
    paragraphs = []
    for paragraph in paragraphs_of(text):
        tidy = _SPACE_BEFORE.sub(r"\1", _EMPTY_BRACKETS.sub("", paragraph))
        if _SENTENCE_END.search(tidy):
            paragraphs.append(" ".join(tidy.split()))
    return paragraphs


def _read_parts(code: Any, media: frozenset[str]) -> Iterator[str]:
    """Yield the running text of a piece of markup; templates, headings and comments are left out.

    The parser's own `strip_code` keeps references and tables, and removing them first takes time
    quadratic in the size of the page.
    """
    for node in code.nodes if code is not None else ():
        match type(node).__name__:
            case "Text":
                yield str(node.value)
            case "HTMLEntity":
                yield _SURROGATES.sub("", node.normalize())
            case "ExternalLink":
                yield from _read_parts(node.title, media)
            case "Wikilink":
                before, colon, _ = str(node.title).partition(":")
                if not (colon and before.strip().casefold() in media):
                    shown = node.title if node.text is None else node.text
                    yield from _read_parts(shown, media)
            case "Tag":
                name = str(node.tag).strip().casefold()
                if name in _BREAKING_TAGS:
                    yield "\n"
                if name not in _DROPPED_TAGS:
                    yield from _read_parts(node.contents, media)


def _elements(content: Stream) -> Iterator[Any]:
    """Yield the elements of an XML file, each when it ends; finished pages are released.

    Raises:
        ValueError: No page ends within `LONGEST_WAIT` bytes, and memory would fill; or it declares
            entities, which could expand without end.
    """
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    root: Any = None
    num_bytes, declarations = 0, b""
    while block := content.read1(XML_BLOCK_BYTES):
        if root is None:  # declarations come before it, in any encoding
            declarations = declarations[-len(DOCTYPE) :] + block.replace(b"\0", b"")
            if DOCTYPE in declarations:
                raise ValueError("a DOCTYPE, which no dump has")
        parser.feed(block)
        num_bytes += len(block)
        for event, element in parser.read_events():
            root = element if root is None else root
            if event == "end":
                yield element
                if _local_name(element.tag) == "page":
                    root.clear()  # otherwise the tree would hold the whole dump
                    num_bytes = 0
        if num_bytes > LONGEST_WAIT:
            raise ValueError(f"{LONGEST_WAIT:,} bytes of XML without the end of a page")
    parser.close()


def _article(page: Any) -> tuple[str] | str:
    """Return the wikitext of a page in a tuple, or the reason why it is left out."""
    text = namespace = ""
    is_redirect = False
    for element in page.iter():
        match _local_name(element.tag):
            case "ns":
                namespace = element.text or ""
            case "redirect":
                is_redirect = True
            case "text":
                text = element.text or ""
    if namespace != ARTICLES:
        return NOT_AN_ARTICLE
    return REDIRECT if is_redirect else (text,)


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2]
