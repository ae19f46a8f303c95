"""The tokenizer of a fairseq model, from its dictionary and the codes of fastBPE.

fastBPE marks a piece that does not end its word ("th@@", "the"), the tokenizers library one that
does ("th", "the</w>"). Pieces that the codes can produce and the dictionary does not hold are
unknown to the model. Merging needs ids for them nevertheless: they follow the last id of the model.
"""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from data_prep.tokenizer.describe import TokenizerError

BOS, PAD, EOS, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
# Before the entries of the dictionary: fairseq's own, and those that the TUPE authors' fork adds.
FIRST, ADDED = (BOS, PAD, EOS, UNK), ("<file>", "<email>", "<url>")
CONTINUES, ENDS = "@@", "</w>"


def fairseq_tokenizer(dictionary: Path, codes: Path, *, num_rows: int) -> tuple[Tokenizer, int]:
    """Return a tokenizer with the ids of the model, and the number of its unknown pieces.

    It lowercases, as the TUPE authors do, and expects words at spaces.

    Args:
        dictionary: dict.txt, an entry and its count on each line.
        codes: File of fastBPE, a merge and its count on each line.
        num_rows: Rows of the model's token embedding; they determine the layout.

    Raises:
        TokenizerError: A file cannot be read, or does not belong to this model.
    """
    pieces = {}
    for number, symbol in enumerate(_symbols(dictionary, num_rows)):
        is_whole = symbol in (*FIRST, MASK) or symbol.endswith(CONTINUES)
        pieces[symbol.removesuffix(CONTINUES) if is_whole else symbol + ENDS] = number
    merges = [(left, right) for left, right, _ in _lines(codes, parts=3)]
    unknown = 0
    for left, right in merges:
        for piece in (left, right, left + right):
            if piece not in pieces:
                pieces[piece] = num_rows + unknown
                unknown += 1
    tokenizer = Tokenizer(models.BPE(pieces, merges, unk_token=UNK, end_of_word_suffix=ENDS))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.BPEDecoder(suffix=ENDS)
    tokenizer.add_special_tokens([*FIRST, MASK])
    return tokenizer, unknown


def _symbols(dictionary: Path, num_rows: int) -> list[str]:
    """Return the symbol of each row of the model."""
    entries = [entry for entry, _ in _lines(dictionary, parts=2)]
    for first in (FIRST + ADDED, FIRST):
        if len(first) + len(entries) + 1 == num_rows:
            return [*first, *entries, MASK]
    fewest = len(FIRST) + len(entries) + 1
    raise TokenizerError(
        f"{dictionary}: has {len(entries):,} entries, which with {len(FIRST)} or "
        f"{len(FIRST + ADDED)} special tokens and {MASK} make {fewest:,} or "
        f"{fewest + len(ADDED):,}; the model has {num_rows:,}: give the dict.txt of this model"
    )


def _lines(file: Path, *, parts: int) -> list[list[str]]:
    """Return the parts of each line, separated by spaces, the last of them a count."""
    try:
        lines = file.read_bytes().decode().rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{file}: cannot be read ({error})") from error
    found = [line.rsplit(" ", parts - 1) for line in lines]
    for number, each in enumerate(found, start=1):
        if len(each) != parts or not all(each):
            raise TokenizerError(
                f"{file}: line {number} does not hold {parts} words, the last of them a count; "
                "give the dict.txt of the model and the codes that fastBPE learned"
            )
    return found
