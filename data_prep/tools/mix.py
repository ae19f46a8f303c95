"""Combine finished shard folders of one tokenizer into a new one, each with a weight.

`build` weights sources of text; this does it where the text is gone, as with imported shards, or
would take hours to encode again.
"""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from data_prep.files.progress_bar import progress_bar
from data_prep.shards.folders import complete_or_absent
from data_prep.shards.format import ShardSet, open_shards
from data_prep.shards.manifest import (
    TOKENIZER_FILE,
    Manifest,
    ShardError,
    SplitName,
    SplitRecord,
    write_manifest,
)
from data_prep.shards.packing import RowFormat, TokenStream
from data_prep.shards.repacking import ROWS_PER_SHARD, CountedStream, DocumentFile, write_splits
from data_prep.shards.unpacking import row_bytes, stored_documents
from data_prep.sources.source import weight_of
from data_prep.text.sampling import EvenSample, passes

if TYPE_CHECKING:
    from data_prep.files.progress_bar import Bar


class Ingredient(NamedTuple):
    """A shard folder and how often its training documents are used in an epoch."""

    shards: ShardSet
    weight: float

    def __str__(self) -> str:
        return f"{self.shards.folder} x {self.weight:g}"


def open_ingredient(text: str) -> Ingredient:
    """Open "FOLDER" or "FOLDER:weight=2.5".

    Raises:
        CorpusError: The weight is not a number, too small or too large.
        ShardError: It is not a shard folder.
    """
    place, separator, digits = text.rpartition(":weight=")
    if not separator:
        return Ingredient(open_shards(Path(text)), 1.0)
    weight = weight_of(text, digits)
    return Ingredient(open_shards(Path(place)), weight)


def mix(
    ingredients: list[Ingredient],
    to: Path,
    *,
    sequence_length: int | None = None,
    rows_per_shard: int = ROWS_PER_SHARD,
) -> Manifest:
    """Write the documents of several shard folders into a new one.

    Training documents follow `passes`. Held-out documents are used once, or in the share that a
    weight below 1 gives. Memory is bounded; the new folder temporarily holds the token ids twice.

    Args:
        ingredients: Folders with the same tokenizer.
        to: The new folder.
        sequence_length: Tokens in a row; default: that of the first folder.
        rows_per_shard: Upper bound of the rows in one file.

    Raises:
        ShardError: The tokenizers differ, a folder cannot be read or written, or a split does not
            fill a row.
    """
    _refuse_other_tokenizers(ingredients)
    first = ingredients[0].shards
    tokenizer = first.manifest.tokenizer
    row_format = RowFormat.of(tokenizer, sequence_length or first.manifest.sequence_length)
    with complete_or_absent(to) as partial:
        scratch = partial / "scratch"
        scratch.mkdir()
        splits = write_splits(
            partial,
            _weighted_streams(ingredients, scratch, row_format),
            row_format,
            rows_per_shard=rows_per_shard,
        )
        shutil.rmtree(scratch)
        shutil.copyfile(first.tokenizer_path, partial / TOKENIZER_FILE)
        manifest = _manifest(ingredients, row_format, splits)
        write_manifest(partial, manifest)
    return manifest


def _refuse_other_tokenizers(ingredients: list[Ingredient]) -> None:
    first = ingredients[0].shards
    expected, moses = first.manifest.tokenizer, first.manifest.tokenizer.moses
    for other in (ingredient.shards for ingredient in ingredients[1:]):
        found = other.manifest.tokenizer
        if found.moses != moses:
            raise ShardError(
                f"{first.folder} and {other.folder} differ in the language of the Moses step "
                f"before the tokenizer ({moses or 'no Moses'}, {found.moses or 'no Moses'}); build "
                "one of them again with the --moses and --language of the other"
            )
        is_equal = found.sha256 == expected.sha256 or _ids_of_text(other) == _ids_of_text(first)
        if not is_equal or found.special_tokens != expected.special_tokens:
            raise ShardError(
                f"{first.folder} and {other.folder} have different tokenizers; build one of them "
                f"again with --tokenizer {first.tokenizer_path}"
            )


def _ids_of_text(shards: ShardSet) -> dict[str, object]:
    """Return the parts of a tokenizer.json that decide the ids of a text.

    Not how rows are framed, padded, truncated and decoded, which an export sets anew.
    """
    content = json.loads(shards.tokenizer_path.read_text(encoding="utf-8"))
    parts = {name: content.get(name) for name in ("model", "normalizer", "pre_tokenizer")}
    added = {token["id"]: token["content"] for token in content.get("added_tokens") or ()}
    return {**parts, "added_tokens": added}


def _weighted_streams(
    ingredients: list[Ingredient], scratch: Path, row_format: RowFormat
) -> dict[SplitName, CountedStream]:
    """Write the documents as token ids and return the stream of each split."""
    total = sum(row_bytes(ingredient.shards.manifest) for ingredient in ingredients)
    streams: dict[SplitName, CountedStream] = {}
    with progress_bar("read documents", total, "B") as bar:
        for name in get_args(SplitName):
            parts: list[tuple[CountedStream, CountedStream]] = []
            weights = []
            for shards, weight in ingredients:
                if name in shards.manifest.splits:
                    weights.append(weight if name == "train" else min(1.0, weight))
                    file = scratch / f"{name}-{len(parts)}"
                    parts.append(_read(shards, name, weights[-1], file, row_format, bar))
            if parts:
                order = [parts[n][0 if is_whole else 1] for n, is_whole in passes(weights)]
                streams[name] = _joined(order, row_format)
    return streams


def _read(
    shards: ShardSet, name: SplitName, weight: float, file: Path, row_format: RowFormat, bar: "Bar"
) -> tuple[CountedStream, CountedStream]:
    """Write the documents of one split: all of them, and the sample for an incomplete pass."""
    whole = DocumentFile(file.with_suffix(".whole"), row_format)
    some = DocumentFile(file.with_suffix(".sample"), row_format)
    sample = EvenSample(weight % 1)
    for number, document in enumerate(stored_documents(shards, name, bar)):
        if weight >= 1:
            whole.append(document.ids)
        if sample.takes(number):
            some.append(document.ids)
    split = shards.manifest.splits[name]
    counted = whole.counted()._replace(words=split.words, sentences=split.sentences)
    return counted, some.counted()


def _joined(parts: list[CountedStream], row_format: RowFormat) -> CountedStream:
    """Return several streams as one; words and sentences stay known if all parts know theirs."""
    parts = [part for part in parts if part.documents]
    words = [part.words for part in parts]
    sentences = [part.sentences for part in parts]
    return CountedStream(
        TokenStream(tuple(file for part in parts for file in part.stream.files), row_format.dtype),
        documents=sum(part.documents for part in parts),
        tokens=sum(part.tokens for part in parts),
        words=None if None in words else sum(filter(None, words)),
        sentences=None if None in sentences else sum(filter(None, sentences)),
    )


def _manifest(
    ingredients: list[Ingredient], row_format: RowFormat, splits: dict[SplitName, SplitRecord]
) -> Manifest:
    manifests = [ingredient.shards.manifest for ingredient in ingredients]
    earlier = [
        f"{shards.folder}: {line}" for shards, _ in ingredients for line in shards.manifest.history
    ]
    return Manifest(
        sequence_length=row_format.sequence_length,
        dtype=row_format.dtype,
        tokenizer=row_format.tokenizer,
        splits=splits,
        settings={
            "command": "mix",
            "weights": [ingredient.weight for ingredient in ingredients],
            "of": [manifest.settings for manifest in manifests],
        },
        source="; ".join(dict.fromkeys(manifest.source for manifest in manifests)),
        licence="; ".join(dict.fromkeys(manifest.licence for manifest in manifests)),
        history=(*earlier, "mix: " + ", ".join(map(str, ingredients))),
    )
