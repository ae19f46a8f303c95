"""Turn a corpus into a folder of shards: sentences, tokenizer, full rows, HDF5, manifest."""

import itertools
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from tokenizers import Tokenizer
from tqdm import tqdm

from data_prep.corpora import PYTHON_DOCS, Corpus, CorpusError, describe, first_words, open_corpus
from data_prep.packing import pack
from data_prep.parallel import batches
from data_prep.sentences import split_sentences
from data_prep.shards import (
    TOKENIZER_FILE,
    Manifest,
    Rows,
    ShardError,
    SpecialToken,
    SplitName,
    SplitRecord,
    TokenizerRecord,
    sha256_of,
    write_manifest,
    write_shards,
)
from data_prep.tokenizer import TokenizerKind, alphabet_of, train_tokenizer

if TYPE_CHECKING:
    Bar = tqdm[NoReturn]

SENTENCES_PER_BATCH = 8192


class BuildSettings(BaseModel):
    """Everything that decides the content of a shard folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: tuple[str, ...] = Field(
        default=(PYTHON_DOCS,), min_length=1, description="corpora, read one after the other"
    )
    sequence_length: int = Field(
        default=128, ge=8, le=65536, description="tokens in a row, [CLS] and [SEP] included"
    )
    vocabulary_size: int = Field(
        default=8192, ge=200, description="upper bound of the number of tokens"
    )
    tokenizer: TokenizerKind = Field(default="wordpiece", description="how words are cut")
    lowercase: bool = Field(default=True, description="lowercase the text and strip accents")
    valid_fraction: float = Field(
        default=0.02, gt=0, le=0.5, description="share of the documents that is held out"
    )
    max_words: int | None = Field(
        default=None, ge=1, description="stop reading after this many words"
    )
    rows_per_shard: int = Field(
        default=65536, ge=1, description="upper bound of the rows in one file"
    )


@dataclass
class _Text:
    """The sentences of one split: a file with one a line and an empty line after each document."""

    file: Path
    documents: int = 0
    words: int = 0
    sentences: int = 0
    tokens: int = 0

    def lines(self) -> Iterator[str]:
        with self.file.open(encoding="utf-8", newline="\n") as stream:
            for line in stream:
                yield line.rstrip("\n")

    def all_sentences(self) -> Iterator[str]:
        return filter(None, self.lines())


def build(settings: BuildSettings, folder: Path, *, progress: bool = True) -> Manifest:
    """Build a shard folder, complete or not at all.

    Whole documents are held out, every n-th with n = 1 / `valid_fraction`, the first included; the
    tokenizer sees the training documents only.

    Args:
        settings: What to build.
        folder: Must not exist yet.
        progress: Whether to show progress and a summary on stderr.

    Raises:
        CorpusError: The text cannot be read or is too small.
        ShardError: `folder` exists or cannot be written.
    """
    start = time.monotonic()
    corpora = [open_corpus(name) for name in settings.corpus]
    with _complete_or_absent(folder) as partial:
        scratch = partial / "scratch"
        scratch.mkdir()
        texts = _write_text(corpora, settings, scratch, progress=progress)
        tokenizer, record = _train(texts["train"], settings, partial, progress=progress)
        manifest = Manifest(
            sequence_length=settings.sequence_length,
            dtype=_dtype(record),
            tokenizer=record,
            splits={
                name: _write_split(name, text, tokenizer, record, settings, progress=progress)
                for name, text in texts.items()
            },
            settings=settings.model_dump(mode="json"),
            source=describe(settings.corpus),
            licence="; ".join(dict.fromkeys(corpus.licence for corpus in corpora)),
        )
        write_manifest(partial, manifest)
        shutil.rmtree(scratch)
    if progress:
        seconds = time.monotonic() - start
        print(f"{folder}: built in {seconds:.0f} s\n{summary(manifest)}", file=sys.stderr)
    return manifest


def summary(manifest: Manifest) -> str:
    """Return one line for each split with what it holds."""
    return "\n".join(
        f"  {name}: {split.documents:,} documents, {split.words:,} words, "
        f"{split.sentences:,} sentences, {split.tokens:,} tokens, {split.rows:,} rows of "
        f"{manifest.sequence_length} in {len(split.shards)} files ({split.rows_dropped} dropped)"
        for name, split in manifest.splits.items()
    )


@contextmanager
def _complete_or_absent(folder: Path) -> Iterator[Path]:
    """Give a new folder beside `folder` that takes its name at the end, or is removed."""
    if folder.exists():
        raise ShardError(f"{folder}: exists already; remove it or build into another folder")
    partial = folder.parent / f".{folder.name}.partial-{os.getpid()}"
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.rename(folder)
    except OSError as error:
        raise ShardError(
            f"{folder}: cannot be written ({error.strerror}); "
            "choose a folder with write permission and enough space"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_text(
    corpora: list[Corpus], settings: BuildSettings, scratch: Path, *, progress: bool
) -> dict[SplitName, _Text]:
    """Read the corpora, split them into sentences and write these, one file for each split."""
    train, valid = _Text(scratch / "train.txt"), _Text(scratch / "valid.txt")
    every = round(1 / settings.valid_fraction)
    documents = itertools.chain.from_iterable(corpus.documents for corpus in corpora)
    split_documents = split_sentences(first_words(documents, settings.max_words))
    with (
        train.file.open("w", encoding="utf-8", newline="\n") as train_stream,
        valid.file.open("w", encoding="utf-8", newline="\n") as valid_stream,
        _bar("sentences", settings.max_words, "word", progress=progress) as bar,
    ):
        for number, sentences in enumerate(split_documents):
            held_out = number % every == 0
            text, stream = (valid, valid_stream) if held_out else (train, train_stream)
            stream.writelines(f"{sentence}\n" for sentence in [*sentences, ""])
            num_words = sum(len(sentence.split()) for sentence in sentences)
            text.documents += 1
            text.words += num_words
            text.sentences += len(sentences)
            bar.update(num_words)
    if not valid.documents:
        raise CorpusError(f"{', '.join(settings.corpus)}: no text at all; name a larger corpus")
    if not train.documents:
        raise CorpusError(
            f"{', '.join(settings.corpus)}: a single document, which cannot be split into train "
            "and valid; put an empty line between documents"
        )
    return {"train": train, "valid": valid}


def _train(
    text: _Text, settings: BuildSettings, folder: Path, *, progress: bool
) -> tuple[Tokenizer, TokenizerRecord]:
    """Train the tokenizer, write it and describe it."""
    size, lowercase = settings.vocabulary_size, settings.lowercase
    with _bar("characters", text.sentences, "sentence", progress=progress) as bar:
        sentences = _counted(text.all_sentences(), bar)
        alphabet = alphabet_of(sentences, vocabulary_size=size, lowercase=lowercase)
    with _bar("tokenizer", text.sentences, "sentence", progress=progress) as bar:
        tokenizer = train_tokenizer(
            _counted(text.all_sentences(), bar),
            kind=settings.tokenizer,
            vocabulary_size=size,
            lowercase=lowercase,
            alphabet=alphabet,
        )
    tokenizer.save(str(folder / TOKENIZER_FILE))
    tokenizer.encode_special_tokens = True  # text that says "[MASK]" is text, not a special token
    record = TokenizerRecord(
        kind=settings.tokenizer,
        sha256=sha256_of(folder / TOKENIZER_FILE),
        vocabulary_size=tokenizer.get_vocab_size(),
        special_tokens={
            name: tokenizer.token_to_id(f"[{name.upper()}]") for name in get_args(SpecialToken)
        },
    )
    return tokenizer, record


def _write_split(
    name: SplitName,
    text: _Text,
    tokenizer: Tokenizer,
    record: TokenizerRecord,
    settings: BuildSettings,
    *,
    progress: bool,
) -> SplitRecord:
    """Encode one split, pack it into rows and write its shards beside the scratch folder."""
    with _bar(f"{name} rows", text.sentences, "sentence", progress=progress) as bar:
        rows = _packed(_encoded(text, tokenizer, bar), text.file, record, settings)
    if not len(rows):
        raise CorpusError(
            f"{', '.join(settings.corpus)}: the {name} split has {text.tokens} tokens, too few for "
            f"one row of {settings.sequence_length}; use a larger corpus, shorter rows or another "
            "valid fraction"
        )
    shards = write_shards(
        text.file.parent.parent,
        name,
        rows,
        max_rows_per_shard=settings.rows_per_shard,
        tokenizer_sha256=record.sha256,
    )
    num_rows = sum(shard.rows for shard in shards)
    return SplitRecord(
        documents=text.documents,
        words=text.words,
        sentences=text.sentences,
        tokens=text.tokens,
        rows=num_rows,
        rows_per_shard=shards[0].rows,
        rows_dropped=len(rows) - num_rows,
        shards=shards,
    )


def _packed(
    documents: Iterator[list[int]],
    text_file: Path,
    record: TokenizerRecord,
    settings: BuildSettings,
) -> Rows:
    """Return all rows of a split, in a file: how many there are decides the size of the shards."""
    file, dtype, length = text_file.with_suffix(".rows"), _dtype(record), settings.sequence_length
    special = record.special_tokens
    with file.open("wb") as stream:
        for rows in pack(
            documents, length, cls_id=special["cls"], sep_id=special["sep"], dtype=dtype
        ):
            rows.tofile(stream)
    if not file.stat().st_size:
        return np.empty((0, length), dtype)  # an empty file cannot be mapped
    return np.memmap(file, dtype, "r").reshape(-1, length)


def _encoded(text: _Text, tokenizer: Tokenizer, bar: "Bar") -> Iterator[list[int]]:
    """Yield the token ids of each document, and count them."""
    document: list[int] = []
    for lines in batches(text.lines(), SENTENCES_PER_BATCH):
        encodings = tokenizer.encode_batch_fast(lines, add_special_tokens=False)
        for line, encoding in zip(lines, encodings, strict=True):
            if line:
                document += encoding.ids
            else:
                text.tokens += len(document)
                yield document
                document = []
        bar.update(sum(map(bool, lines)))


def _counted(sentences: Iterable[str], bar: "Bar") -> Iterator[str]:
    for sentence in sentences:
        yield sentence
        bar.update()


def _bar(stage: str, total: int | None, unit: str, *, progress: bool) -> "Bar":
    return tqdm(
        desc=stage,
        total=total,
        unit=f" {unit}s",
        unit_scale=True,
        disable=not progress,
        # In a log file every update is a line.
        mininterval=0.2 if sys.stderr.isatty() else 20,
    )


def _dtype(record: TokenizerRecord) -> Literal["uint16", "uint32"]:
    return "uint16" if record.vocabulary_size <= 1 << 16 else "uint32"
