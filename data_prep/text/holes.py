"""Drop sentences of Wikipedia in which a template or mark-up has left a hole or itself."""

import re
from collections import Counter
from collections.abc import Iterable

from data_prep.settings import SentenceSplitter
from data_prep.sources.source import GAP
from data_prep.text.sentences import split_sentences

# A space before a comma or full stop, brackets or quotes around nothing, marks that follow each
# other; braces, links, -{zh-hans:..}-, __NOTOC__, and the bars of captions.
_HOLE = re.compile(
    rf"""{GAP}|\ [,.](?![\w.])|\(\ |\ \)|\([,;)]|[,;]\ ?[,;]|(?<![\w.])""(?!\w)|“”"""
    r"""|\{\{|\}\}|\[\[|\]\]|-\{|__[^\Wa-z\d]+__|\w\|\S""",
    re.VERBOSE,
)


def without_holes(
    paragraphs: Iterable[str], counts: Counter[str], *, splitter: SentenceSplitter, language: str
) -> list[str]:
    """Return paragraphs without sentences that show a hole, which are counted; some may be empty.

    Of 15,000 sentences of 196 articles, WikiExtractor had made holes in 2.9 %; half of them show.
    """
    kept = []
    for paragraph in paragraphs:
        if _HOLE.search(paragraph):
            (sentences,) = split_sentences([paragraph], splitter=splitter, language=language)
            whole = [sentence for sentence in sentences if not _HOLE.search(sentence)]
            dropped = len(sentences) - len(whole)
            counts["sentences dropped: holes of templates, or markup"] += dropped
            paragraph = "".join(whole).strip()
        kept.append(paragraph)
    return kept
