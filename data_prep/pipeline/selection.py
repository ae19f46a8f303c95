"""Select the paragraphs to keep: the first occurrence of each, up to `max_words`.

This is the only step over the whole corpus at once; it reads 16 bytes for each text, see
text/deduplicate.py.
"""

import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_prep.pipeline.segments import ReadSegment, Segment, SegmentFiles
from data_prep.settings import BuildSettings
from data_prep.text.deduplicate import repetitions
from data_prep.text.sampling import Before, held_out

WORTH_A_NOTE = 0.1  # share of paragraphs that are repeated

Flags = NDArray[np.bool_]


def select_paragraphs(
    segments: list[ReadSegment], weights: list[float], settings: BuildSettings, workplace: Path
) -> list[Segment]:
    """Write what each segment keeps and holds out ("keep.npz"), and return them.

    A document that repeats an earlier one is dropped whole. From a kept document each paragraph is
    dropped that repeats an earlier one, of any document.
    """
    files = [SegmentFiles(workplace, number) for number in range(len(segments))]
    scratch = workplace / "repeated"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    counts = (sum(s.documents for s in segments), sum(s.paragraphs for s in segments))
    is_document = _repeated("document", counts[0], files, scratch, settings)
    is_paragraph = _repeated("paragraph", counts[1], files, scratch, settings)
    kept: list[Segment] = []
    first_document = first_paragraph = num_words = 0
    before_next = Before()
    for place, segment in zip(files, segments, strict=True):
        with np.load(place.path("counts.npz")) as stored:
            words, sizes = stored["words"], stored["paragraphs"]
            continues = stored["continues"]
        num_before = num_words + np.cumsum(words, dtype=np.int64) - words
        documents = slice(first_document, first_document + segment.documents)
        paragraphs = slice(first_paragraph, first_paragraph + segment.paragraphs)
        keep, left, cleaning = _selected(
            is_document[documents],
            is_paragraph[paragraphs],
            num_before < (settings.max_words or np.inf),
            np.repeat(np.arange(len(sizes)), sizes),
        )
        preceding = before_next
        held, before_next = held_out(settings.valid_fraction, continues[left], preceding)
        np.savez(place.path("keep.npz"), paragraphs=keep, held_out=held)
        weight = weights[segment.source]
        kept.append(Segment(place, segment, weight, preceding, len(held), cleaning))
        first_document, first_paragraph = documents.stop, paragraphs.stop
        num_words += segment.words
    shutil.rmtree(scratch, ignore_errors=True)
    repeated = sum(segment.cleaning["paragraphs dropped: repeated"] for segment in kept)
    if repeated > WORTH_A_NOTE * counts[1]:
        print(
            f"note: {repeated / counts[1]:.0%} of the paragraphs (the lines of a text, also of a "
            "cell) repeat earlier ones and are dropped; --data.deduplicate documents keeps them",
            file=sys.stderr,
        )
    return kept


def _selected(
    is_document: Flags, is_paragraph: Flags, wanted: Flags, document_of: NDArray[np.int64]
) -> tuple[Flags, Flags, Counter[str]]:
    """Return which paragraphs of a segment are kept, of which documents, and what is dropped.

    Args:
        is_document: Whether a document repeats an earlier one [documents].
        is_paragraph: Whether a paragraph does [paragraphs].
        wanted: Whether a paragraph lies within `max_words` [paragraphs].
        document_of: The document of each paragraph [paragraphs].
    """
    in_repeated_document = is_document[document_of]
    keep = wanted & ~is_paragraph & ~in_repeated_document
    reached = np.bincount(document_of[wanted], minlength=len(is_document)) > 0
    left = np.bincount(document_of[keep], minlength=len(is_document)) > 0
    dropped = {
        "documents dropped: repeated": reached & is_document,
        "documents dropped: every paragraph repeated": reached & ~left & ~is_document,
        "paragraphs dropped: repeated": wanted & is_paragraph & ~in_repeated_document,
    }
    return keep, left, +Counter({what: int(f.sum()) for what, f in dropped.items()})


def _repeated(
    kind: str, count: int, files: list[SegmentFiles], scratch: Path, settings: BuildSettings
) -> Flags:
    """Return which texts repeat an earlier one, in a memory map: a byte each may be too much."""
    flags = np.memmap(scratch / f"{kind}s", np.bool_, "w+", shape=(max(1, count),))
    if settings.deduplicate in ("paragraphs", f"{kind}s"):
        hashes = (np.load(file.path("counts.npz"))[f"{kind}_hashes"] for file in files)
        for places in repetitions(hashes, count, scratch / "hashes"):
            flags[places] = True
    return flags
