"""Moses' normalisation of punctuation and its tokenization, the route of the TUPE paper."""

import functools

from sacremoses import MosesPunctNormalizer, MosesTokenizer


def moses_words(sentence: str, language: str) -> str:
    """Return the words of a sentence, set apart by single spaces.

    Differs from the scripts of Moses (Koehn et al. 2007) in that characters are not escaped: the
    pieces of "&apos;" would be learned as words. Languages without rules of their own get those of
    English. Nothing but white space is added or lost after the punctuation was normalised, except
    that sacremoses marks several dots by "DOTDOTMULTI": in a text, that word becomes dots too.
    """
    normalizer, tokenizer = _steps(language)
    # Asked for one string, sacremoses puts more spaces than one around a last full stop and quote.
    return " ".join(tokenizer.tokenize(normalizer.normalize(sentence), escape=False))


@functools.cache
def _steps(language: str) -> tuple[MosesPunctNormalizer, MosesTokenizer]:
    return MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
