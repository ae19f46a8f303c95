"""A dump of Wikipedia: pages-articles.xml as the Wikimedia Foundation publishes it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from data_prep.sources.lines import DAMAGE, opened
from data_prep.sources.source import (
    DamagedFile,
    FileSource,
    Parsed,
    RawDocument,
    Record,
    Skipped,
    paragraphs_of,
)

LONGEST_PAGE = 2_000_000  # characters; Wikipedia itself refuses more than 2 MB
DEEPEST_MARKUP = 100  # the parser takes minutes for a page that opens thousands of templates
ARTICLES, FILES, CATEGORIES = "0", "6", "14"  # namespaces

# Not words of the article: markup that the parser would hand on as text.
_DROPPED_TAGS = frozenset(
    ("ref", "references", "gallery", "table", "math", "chem", "code", "source", "syntaxhighlight")
    + ("timeline", "score", "imagemap", "templatestyles", "graph", "hiero", "style", "script")
)
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*(?:\s|$)|[。！？।؟]")
_BRACKETS = re.compile(r"\{\{|\}\}|\[\[|\]\]")
_EMPTY_BRACKETS = re.compile(r"\(\s*[,;:\s]*\)|\[\s*\]")
_SPACE_BEFORE = re.compile(r"\s+([,.;:!?)])")


class Page(NamedTuple):
    """An article in wiki markup, with the names that begin links to files and categories."""

    wikitext: str
    media: frozenset[str]


@dataclass(frozen=True)
class WikipediaDump(FileSource):
    """Articles of a dump, without markup, tables, lists, headings and references."""

    kind = "Wikipedia dumps"

    @property
    def licence(self) -> str:
        """Return Wikipedia's licence."""
        return "CC BY-SA 4.0 (Wikipedia)"

    def records(self, file: Path) -> Iterator[Record | Skipped]:
        """Yield the articles; redirects and pages of other namespaces are skipped."""
        number = 0
        media = {"file", "image", "media", "category"}
        try:
            with opened(file) as (content, stored):
                events = ElementTree.iterparse(content, events=("start", "end"))
                _, root = next(events)
                for event, element in events:
                    if event == "start":
                        continue
                    match _local_name(element.tag):
                        case "namespace" if element.get("key") in (FILES, CATEGORIES):
                            media.add((element.text or "").casefold())
                        case "page":
                            number += 1
                            found = _article(element)
                            if isinstance(found, str):
                                yield Skipped(str(file), number, found)
                            else:
                                page = Page(found[0], frozenset(media))
                                yield Record(page, number, stored.tell())
                            root.clear()  # the tree would hold the whole dump
        except StopIteration:
            raise DamagedFile(0, "the file is empty") from None
        except (*DAMAGE, ElementTree.ParseError) as error:
            raise DamagedFile(number, error) from error

    def parse(self, raw: RawDocument) -> Parsed:
        """Return the paragraphs of an article that hold sentences."""
        reason = None
        if len(raw.content.wikitext) > LONGEST_PAGE:
            reason = "page over 2 MB"
        elif _depth(raw.content.wikitext) > DEEPEST_MARKUP:
            reason = "page with unclosed markup"
        if reason:
            return Parsed([], [Skipped(raw.file, raw.line, reason)])
        return Parsed(plain_paragraphs(raw.content), [])


def plain_paragraphs(page: Page) -> list[str]:
    """Return the running text of an article, paragraph by paragraph.

    What does not hold the end of a sentence is left out: headings, items of lists, captions.
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
    """Yield what is read of a piece of markup; templates, headings and comments are not.

    The parser's own `strip_code` hands on references and tables too, and removing them before
    takes a time that grows with the square of the page.
    """
    for node in code.nodes if code is not None else ():
        match type(node).__name__:
            case "Text":
                yield str(node.value)
            case "HTMLEntity":
                yield str(node.normalize() or "")
            case "ExternalLink":
                yield from _read_parts(node.title, media)
            case "Wikilink":
                before, colon, _ = str(node.title).partition(":")
                if not (colon and before.strip().casefold() in media):
                    shown = node.title if node.text is None else node.text
                    yield from _read_parts(shown, media)
            case "Tag" if str(node.tag).strip().casefold() not in _DROPPED_TAGS:
                yield from _read_parts(node.contents, media)


def _depth(wikitext: str) -> int:
    """Return how many templates and links are open at once, at most."""
    deepest = depth = 0
    for bracket in _BRACKETS.findall(wikitext):
        depth = max(0, depth + (1 if bracket in ("{{", "[[") else -1))
        deepest = max(deepest, depth)
    return deepest


def _article(page: Any) -> tuple[str] | str:
    """Return the wikitext of a page in a tuple, or why it is left out."""
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
        return "not an article"
    return "a redirect" if is_redirect else (text,)


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2]
