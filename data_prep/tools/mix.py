"""Make one shard folder of several, each used as often as its weight says.

A weight is the number of times that each training document is used in an epoch, as "epochs" in
The Pile (Gao et al. 2020, Table 1).
"""

import shutil
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
from data_prep.shards.repacking import ROWS_PER_SHARD, Counted, DocumentFile, write_splits
from data_prep.shards.unpacking import stored_bytes, stored_documents
from data_prep.text.sampling import Share

if TYPE_CHECKING:
    from data_prep.files.progress_bar import Bar

LARGEST_WEIGHT = 1000


class Ingredient(NamedTuple):
    """A shard folder and how often its training documents are used."""

    shards: ShardSet
    weight: float

    @property
    def num_passes(self) -> int:
        """Return the number of whole passes."""
        return int(self.weight)

    @property
    def rest(self) -> float:
        """Return the share of the documents that is used once more."""
        return float(Fraction(str(self.weight)) - self.num_passes)

    def __str__(self) -> str:
        return f"{self.shards.folder} x {self.weight:g}"


class _Part(NamedTuple):
    """What is taken of one split of one folder."""

    whole: Counted
    share: Counted  # of the documents, for an incomplete pass


def open_ingredient(text: str) -> Ingredient:
    """Open "FOLDER" or "FOLDER:weight=2.5".

    Raises:
        ShardError: The folder is no shard folder, or the weight no number in (0, 1000].
    """
    place, separator, digits = text.rpartition(":weight=")
    if not separator:
        return Ingredient(open_shards(Path(text)), 1.0)
    try:
        weight = float(digits)
    except ValueError:
        weight = 0.0
    if not 1e-6 <= weight <= LARGEST_WEIGHT:
        raise ShardError(
            f"{text}: the weight {digits!r} is not a number above 0 and up to {LARGEST_WEIGHT}"
        )
    return Ingredient(open_shards(Path(place)), weight)


def mix(
    ingredients: list[Ingredient],
    to: Path,
    *,
    sequence_length: int | None = None,
    rows_per_shard: int = ROWS_PER_SHARD,
    progress: bool = False,
) -> Manifest:
    """Write the documents of several shard folders into a new one.

    A training weight of 2.5 takes all documents twice, then every second one a third time. Passes
    follow one another, so that copies of a document do not lie side by side. Held-out documents
    are taken once, or in the share that a weight below 1 gives. Memory is bounded; the new folder
    holds the token ids once more meanwhile.

    Args:
        ingredients: Folders with the same tokenizer.
        to: The new folder.
        sequence_length: Tokens in a row; default: that of the first folder.
        rows_per_shard: Upper bound of the rows in one file.
        progress: Whether to show progress on stderr.

    Raises:
        ShardError: The tokenizers differ, a folder cannot be read or written, or a split would
            have no row.
    """
    _refuse_other_tokenizers(ingredients)
    first = ingredients[0].shards
    tokenizer = first.manifest.tokenizer
    row_format = RowFormat.of(tokenizer, sequence_length or first.manifest.sequence_length)
    with complete_or_absent(to) as new_folder:
        scratch = new_folder / "scratch"
        scratch.mkdir()
        splits = write_splits(
            new_folder,
            _collect(ingredients, scratch, row_format, progress=progress),
            row_format,
            rows_per_shard=rows_per_shard,
            progress=progress,
        )
        shutil.rmtree(scratch)
        shutil.copyfile(first.tokenizer_path, new_folder / TOKENIZER_FILE)
        manifest = _manifest(ingredients, row_format, splits)
        write_manifest(new_folder, manifest)
    return manifest


def _manifest(
    ingredients: list[Ingredient], row_format: RowFormat, splits: dict[SplitName, SplitRecord]
) -> Manifest:
    manifests = [ingredient.shards.manifest for ingredient in ingredients]
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
        history=_history(ingredients),
    )


def _refuse_other_tokenizers(ingredients: list[Ingredient]) -> None:
    first = ingredients[0].shards
    for other in (ingredient.shards for ingredient in ingredients[1:]):
        if other.manifest.tokenizer != first.manifest.tokenizer:
            raise ShardError(
                f"{first.folder} and {other.folder} have different tokenizers; build one of them "
                f"again with --tokenizer {first.tokenizer_path}"
            )


def _collect(
    ingredients: list[Ingredient], scratch: Path, row_format: RowFormat, *, progress: bool
) -> dict[SplitName, Counted]:
    """Write the documents as raw token ids and return the streams that are to be cut into rows."""
    total = sum(stored_bytes(ingredient.shards.manifest) for ingredient in ingredients)
    train, valid = [], []
    with progress_bar("read documents", total, "B", shown=progress) as bar:
        for number, ingredient in enumerate(ingredients):
            read = partial(_read, ingredient.shards, scratch / str(number), row_format, bar)
            weight = ingredient.weight
            train.append(read("train", whole=weight >= 1, share=ingredient.rest))
            if "valid" in ingredient.shards.manifest.splits:
                share = weight if weight < 1 else 0.0
                valid.append(read("valid", whole=weight >= 1, share=share))
    streams: dict[SplitName, Counted] = {"train": _in_passes(ingredients, train, row_format)}
    if valid:
        streams["valid"] = _total([count for part in valid for count in part], row_format)
    return streams


def _read(
    shards: ShardSet,
    place: Path,
    row_format: RowFormat,
    bar: "Bar",
    name: SplitName,
    *,
    whole: bool,
    share: float,
) -> _Part:
    """Write the documents of one split, all of them and a share."""
    everything = DocumentFile(place.with_suffix(f".{name}.ids"), row_format)
    some = DocumentFile(place.with_suffix(f".{name}.share.ids"), row_format)
    chosen = Share(share)
    for number, document in enumerate(stored_documents(shards, name, bar)):
        if whole:
            everything.append(document.ids)
        if chosen.takes(number):
            some.append(document.ids)
    split = shards.manifest.splits[name]
    counted = everything.counted()._replace(words=split.words, sentences=split.sentences)
    return _Part(counted, some.counted())


def _in_passes(ingredients: list[Ingredient], parts: list[_Part], row_format: RowFormat) -> Counted:
    """Return all training documents: a pass over every folder, then the next pass."""
    pairs = list(zip(ingredients, parts, strict=True))
    order = []
    for number in range(max(ingredient.num_passes for ingredient in ingredients) + 1):
        order += [
            part.whole if number < ingredient.num_passes else part.share
            for ingredient, part in pairs
            if number <= ingredient.num_passes
        ]
    return _total(order, row_format)


def _total(parts: list[Counted], row_format: RowFormat) -> Counted:
    """Return several streams as one; words and sentences stay known if all of them are."""
    parts = [part for part in parts if part.documents]
    words = [part.words for part in parts]
    sentences = [part.sentences for part in parts]
    return Counted(
        TokenStream(tuple(file for part in parts for file in part.stream.files), row_format.dtype),
        documents=sum(part.documents for part in parts),
        tokens=sum(part.tokens for part in parts),
        words=None if None in words else sum(filter(None, words)),
        sentences=None if None in sentences else sum(filter(None, sentences)),
    )


def _history(ingredients: list[Ingredient]) -> tuple[str, ...]:
    before = [
        f"{ingredient.shards.folder}: {line}"
        for ingredient in ingredients
        for line in ingredient.shards.manifest.history
    ]
    return (*before, "mix: " + ", ".join(map(str, ingredients)))
