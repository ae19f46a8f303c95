"""Stop a build whose text is skipped in large part, or unknown to its tokenizer.

Both give rows without complaint, and a model that has learned little or nothing.
"""

from collections import Counter
from pathlib import Path

from data_prep.pipeline.segments import SKIPPED, EncodedSegment, ReadSegment
from data_prep.settings import DamagedFiles
from data_prep.sources.file_types import conversion
from data_prep.sources.source import EXPECTED_SKIPS, INVALID_UTF8, CorpusError, Skipped, Source
from data_prep.sources.tables import CsvFiles, JsonLines
from data_prep.sources.text import TextFiles
from data_prep.sources.wikiextractor import WikiExtractorFiles
from data_prep.tokenizer.describe import TokenizerError

# A source, or a tokenizer, is judged at its end, and where so many segments, 64 MB, are done: the
# beginning of a terabyte decides, rather than hours later the whole.
EARLY_SEGMENTS = 8

MOST_SKIPPED = 0.02  # of a source, unless damaged_files=skip
MOST_ALLOWED = 0.5  # a larger share is not worth an offer to build without it
# Tokenizers that fit have less than 1 %. On a text of [UNK] alone the loss is 0.
MOST_UNKNOWN = 0.5

_PLAIN_TEXT = (TextFiles, JsonLines, CsvFiles, WikiExtractorFiles)


class SkippedShare:
    """Counts what is skipped of each source, segment by segment in order."""

    def __init__(self, sources: list[Source], damaged_files: DamagedFiles) -> None:
        self._sources, self._refuses = sources, damaged_files == "stop"
        self._begin(0)

    def add(self, segment: ReadSegment) -> None:
        """Count a segment.

        Raises:
            CorpusError: More than the allowed share was skipped of the source that ends before this
                segment, or of the first segments of this one.
        """
        if segment.source != self._source:
            self.check()
            self._begin(segment.source)
        self._segments += 1
        self._units += segment.units
        self._skipped += segment.units_skipped
        for place in segment.skipped:
            if place.reason not in EXPECTED_SKIPS and place.reason not in self._places:
                self._places[place.reason] = place
        for reason in self._places:
            self._reasons[reason] += segment.cleaning.get(f"{SKIPPED}{reason}", 0)
        if self._segments >= EARLY_SEGMENTS:
            self.check()

    def check(self) -> None:
        """Check the source that was counted last.

        Raises:
            CorpusError: More than the allowed share of it was skipped.
        """
        if not self._refuses or self._skipped <= MOST_SKIPPED * self._units:
            return
        source = self._sources[self._source]
        share = self._skipped / self._units
        reason, _ = self._reasons.most_common(1)[0]
        place = self._places[reason]
        allow = "; to build without them: --data.damaged_files skip"
        raise CorpusError(
            f"{source.name}: {self._skipped:,} of {self._units:,} {source.unit} were skipped "
            f"({share:.1%}, allowed: {MOST_SKIPPED:.1%}): {reason}, first in {place.file} line "
            f"{place.line}; {_remedy(source, place)}{allow if share < MOST_ALLOWED else ''}"
        )

    def _begin(self, source: int) -> None:
        self._source = source
        self._segments = self._units = self._skipped = 0
        self._places: dict[str, Skipped] = {}
        self._reasons: Counter[str] = Counter()


def refuse_unknown(name: str, segments: list[EncodedSegment]) -> None:
    """Refuse a tokenizer, as the user named it, that does not know the text.

    Raises:
        TokenizerError: Most tokens of the text are [UNK].
    """
    num_tokens = sum(segment.train.tokens for segment in segments)
    num_unknown = sum(segment.unknown for segment in segments)
    if num_unknown > MOST_UNKNOWN * num_tokens:
        raise TokenizerError(
            f"{name}: {num_unknown / num_tokens:.0%} of the tokens of this text are [UNK], the "
            f"allowed share is {MOST_UNKNOWN:.0%}; choose a tokenizer made for its language and "
            "script, or train one, with a larger vocabulary or as byte-bpe, which knows every text"
        )


def _remedy(source: Source, place: Skipped) -> str:
    """Return what can be done about a kind of skipped lines or documents."""
    if place.reason == INVALID_UTF8 and isinstance(source, _PLAIN_TEXT):
        command = conversion(Path(place.file), "WINDOWS-1252")
        return f"convert it from its encoding, such as WINDOWS-1252: {command}"
    if "column" in place.reason:
        return "name the column of the text: column=NAME"
    if "JSON" in place.reason:
        return "every line must hold one JSON object, as jq -c writes them"
    return "fix or remove them"
