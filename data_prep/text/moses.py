"""Moses' normalisation of punctuation and tokenization, as in the TUPE paper."""

import functools
from typing import Any


def moses_words(sentence: str, language: str) -> str:
    """Return the words of a sentence, separated by single spaces.

    Differs from the scripts of Moses (Koehn et al. 2007) in that characters are not escaped: the
    pieces of "&apos;" would be learned as words. Languages without rules of their own use those of
    English. After normalisation only white space changes, with one exception: sacremoses encodes
    several dots as "DOTDOTMULTI" internally, so this word in a text becomes dots.
    """
    normalizer, tokenizer = _steps(language)
    # Joined by sacremoses itself, a last full stop and quote have several spaces around them.
    return " ".join(tokenizer.tokenize(normalizer.normalize(sentence), escape=False))


@functools.cache
def _steps(language: str) -> tuple[Any, Any]:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    return MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
