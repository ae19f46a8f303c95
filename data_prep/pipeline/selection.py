"""Select the paragraphs to keep: the first occurrence of each, up to `max_words`.

This is the only step over the whole corpus at once; it reads 16 bytes for each text, see
text/deduplicate.py.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.pipeline.segments import KeptSegment, ReadSegment, SegmentFiles
from data_prep.settings import BuildSettings
from data_prep.text.deduplicate import Hashes, repetitions

Flags = NDArray[np.bool_]


class _Repeated(NamedTuple):
    """Which texts repeat an earlier one, in the order of the corpus."""

    documents: Flags
    paragraphs: Flags


def select_paragraphs(
    files: list[SegmentFiles],
    segments: list[ReadSegment],
    settings: BuildSettings,
    workplace: Path,
) -> list[KeptSegment]:
    """Write for each segment which of its paragraphs are kept ("keep.npy"), with counts.

    A document that repeats an earlier one is dropped whole. From a kept document each paragraph is
    dropped that repeats an earlier one, of any document.
    """
    done = [KeptSegment.load(file.path("kept.json")) for file in files]
    if all(done):
        return [record for record in done if record is not None]
    repeated = _find_repeated(files, segments, settings, workplace)
    kept: list[KeptSegment] = []
    first_document = first_paragraph = num_documents = num_words = 0
    for place, segment in zip(files, segments, strict=True):
        with np.load(place.path("counts.npz")) as counts:
            words, sizes = counts["words"], counts["paragraphs"]
        before = num_words + np.cumsum(words, dtype=np.int64) - words
        wanted = before < (settings.max_words or np.inf)
        documents = slice(first_document, first_document + segment.documents)
        paragraphs = slice(first_paragraph, first_paragraph + segment.paragraphs)
        record = _select_in(
            place,
            _Repeated(repeated.documents[documents], repeated.paragraphs[paragraphs]),
            wanted,
            sizes,
            num_documents,
        )
        record.save(place.path("kept.json"))
        kept.append(record)
        first_document, first_paragraph = documents.stop, paragraphs.stop
        num_words += segment.words
        num_documents += record.documents
    shutil.rmtree(workplace / "repeated", ignore_errors=True)
    return kept


def _select_in(
    place: SegmentFiles,
    repeated: _Repeated,
    wanted: Flags,
    sizes: NDArray[np.uint32],
    first_document: int,
) -> KeptSegment:
    """Write which paragraphs of a segment are kept."""
    document_of = np.repeat(np.arange(len(sizes)), sizes)
    in_repeated_document = repeated.documents[document_of]
    keep = wanted & ~repeated.paragraphs & ~in_repeated_document
    np.save(place.path("keep.npy"), keep)
    reached = np.bincount(document_of[wanted], minlength=len(sizes)) > 0
    left = np.bincount(document_of[keep], minlength=len(sizes)) > 0
    counts = Counter(
        {
            "documents dropped: repeated": int((reached & repeated.documents).sum()),
            "documents dropped: every paragraph repeated": int(
                (reached & ~left & ~repeated.documents).sum()
            ),
            "paragraphs dropped: repeated": int(
                (wanted & repeated.paragraphs & ~in_repeated_document).sum()
            ),
        }
    )
    return KeptSegment(first_document=first_document, documents=int(left.sum()), cleaning=+counts)


def _find_repeated(
    files: list[SegmentFiles],
    segments: list[ReadSegment],
    settings: BuildSettings,
    workplace: Path,
) -> _Repeated:
    """Return flags in memory-mapped files: one byte a text may exceed the memory."""
    scratch = workplace / "repeated"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    found = {}
    for kind, count, is_wanted in (
        ("document", sum(s.documents for s in segments), settings.deduplicate != "none"),
        ("paragraph", sum(s.paragraphs for s in segments), settings.deduplicate == "paragraphs"),
    ):
        flags = np.memmap(scratch / f"{kind}s", np.bool_, "w+", shape=(count,))
        if is_wanted:
            hashes = _hashes(files, f"{kind}_hashes")
            for places in repetitions(hashes, count, scratch / "hashes"):
                flags[places] = True
        found[kind] = flags
    return _Repeated(found["document"], found["paragraph"])


def _hashes(files: list[SegmentFiles], name: str) -> Iterator[Hashes]:
    for file in files:
        with np.load(file.path("counts.npz")) as counts:
            yield counts[name]
