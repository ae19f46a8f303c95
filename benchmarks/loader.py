"""Compare the speed of the loader with the raw memory map and with Hugging Face's loader.

    python benchmarks/loader.py [--tokens 50000000 --lengths 128 512 --sequences 256]

Random ids are written as shards and as a `datasets` folder; both stay in the page cache. Every
variant reads random rows and returns batches of int64. The variants alternate in turns of a part of
a second, so that drifting machine speed affects all of them; medians and quartiles are printed.
Tokens per second of wall time, and of processor time of this process without its workers. Each
process uses one thread. Run it on an idle machine.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from data_prep.files.program import run_program
from pretrain.distributed.freed_memory import keep_freed_memory

if TYPE_CHECKING:
    from data_prep.shards.manifest import SpecialToken, TokenizerRecord

SPECIAL: dict["SpecialToken", int] = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
VOCABULARY = 30_522  # that of BERT
SPLIT_WORDS = 4  # every fourth token continues a word
# Read when the libraries are imported, which is done late.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

Deliver = Callable[[], object]


class Speed(NamedTuple):
    """Batches a second in one turn."""

    wall: float
    processor: float


def main() -> None:
    """Time all variants at all lengths and print a table for each length."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=50_000_000, help="in the shards")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--sequences", type=int, default=256, help="in a batch")
    parser.add_argument("--turns", type=int, default=15, help="counted turns of each variant")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn, at least")
    arguments = parser.parse_args()
    os.environ |= ENVIRONMENT
    keep_freed_memory()
    for length in arguments.lengths:
        print(f"rows of {length} tokens ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            variants = our_variants(arguments, length, Path(folder))
            variants |= hugging_face_variant(arguments, length, Path(folder))
            print_table(alternate(variants, arguments), arguments, length)


def alternate(
    variants: dict[str, Deliver], arguments: argparse.Namespace
) -> dict[str, list[Speed]]:
    """Run the variants alternately and return the speed of each turn; two rounds warm up."""
    speeds: dict[str, list[Speed]] = {name: [] for name in variants}
    for round_number in range(arguments.turns + 2):
        for name, deliver in variants.items():
            speed = one_turn(deliver, arguments.seconds)
            if round_number >= 2:
                speeds[name].append(speed)
    return speeds


def one_turn(deliver: Deliver, seconds: float) -> Speed:
    """Read batches for this many seconds and return the speed."""
    wall, processor, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - wall < seconds:
        deliver()
        count += 1
    return Speed(count / (time.perf_counter() - wall), count / (time.process_time() - processor))


def our_variants(arguments: argparse.Namespace, length: int, folder: Path) -> dict[str, Deliver]:
    """Return the raw memory map, our batches in process by kind of masking, and one worker."""
    import numpy as np

    from data_prep.shards.format import open_shards
    from pretrain.config.recipe import load_settings
    from pretrain.data.batches import Place, TrainingBatches, batches_from

    write_shards(folder / "shards", length, arguments.tokens // length)
    shards = open_shards(folder / "shards")
    place = Place(arguments.sequences, rank=0, world_size=1)

    def batches(masking: str, workers: int = 0) -> Deliver:
        words = ["--data.shards", str(shards.folder), "--data.masking", masking]
        dataset = TrainingBatches(shards, load_settings("tiny_cpu", words), place)
        return batches_from(dataset, 0, 1 << 40, workers=workers, pin_memory=False).__next__

    train = shards.split("train")
    [rows] = train.read_in_order([0], max_rows=train.num_rows)
    generator = np.random.default_rng(0)

    def raw() -> object:
        chosen = generator.integers(0, len(rows), arguments.sequences)
        return np.take(rows, chosen, axis=0).astype(np.int64)

    return {
        "raw memory map, not masked": raw,
        "Tupelo, tokens": batches("tokens"),
        "Tupelo, words": batches("words"),
        "Tupelo, spans": batches("spans"),
        "Tupelo, tokens, 1 worker": batches("tokens", workers=1),
    }


def hugging_face_variant(
    arguments: argparse.Namespace, length: int, folder: Path
) -> dict[str, Deliver]:
    """Return Hugging Face's memory-mapped rows and masking in process, as in its Trainer."""
    from datasets import Dataset, disable_progress_bars, load_from_disk
    from torch.utils.data import DataLoader
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    from data_prep.shards.format import open_shards

    disable_progress_bars()
    train = open_shards(folder / "shards").split("train")
    [rows] = train.read_in_order([0], max_rows=train.num_rows)
    Dataset.from_dict({"input_ids": list(rows)}).save_to_disk(str(folder / "arrow"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "shards" / "tokenizer.json"),
        **{f"{name}_token": f"[{name.upper()}]" for name in SPECIAL},
    )
    loader = DataLoader(
        load_from_disk(str(folder / "arrow")),
        batch_size=arguments.sequences,
        shuffle=True,
        collate_fn=DataCollatorForLanguageModeling(tokenizer),
    )

    def forever() -> Iterator[object]:
        while True:
            yield from loader

    return {"Hugging Face datasets + collator": forever().__next__}


def write_shards(folder: Path, length: int, num_rows: int) -> None:
    """Write random rows and a tokenizer as a shard folder."""
    import numpy as np

    from data_prep.shards.format import write_shard
    from data_prep.shards.manifest import Manifest, SplitRecord, write_manifest

    folder.mkdir()
    record = write_tokenizer(folder)
    ids = np.random.default_rng(0).integers(5, VOCABULARY, (num_rows, length)).astype(np.uint16)
    ids[:, 0], ids[:, length // 2], ids[:, -1] = SPECIAL["cls"], SPECIAL["sep"], SPECIAL["sep"]
    shard = write_shard(
        folder / "train-00000.h5",
        [ids],
        shape=ids.shape,
        dtype="uint16",
        tokenizer_sha256=record.sha256,
    )
    train = SplitRecord(
        documents=num_rows,
        words=None,
        sentences=None,
        tokens=ids.size,
        rows=num_rows,
        rows_per_shard=num_rows,
        rows_dropped=0,
        shards=(shard,),
    )
    manifest = Manifest(
        sequence_length=length,
        dtype="uint16",
        tokenizer=record,
        splits={"train": train},
        settings={},
        source="random ids",
        licence="none",
    )
    write_manifest(folder, manifest)


def write_tokenizer(folder: Path) -> "TokenizerRecord":
    """Write a tokenizer of artificial words, some of them continuations; return its record."""
    from tokenizers import Tokenizer, models

    from data_prep.shards.manifest import TOKENIZER_FILE, TokenizerRecord, sha256_of

    names = [f"[{name.upper()}]" for name in SPECIAL]
    numbers = range(len(names), VOCABULARY)
    words = [f"##{n}" if n % SPLIT_WORDS == 0 else f"word{n}" for n in numbers]
    vocabulary = {word: number for number, word in enumerate(names + words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.add_special_tokens(names)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    return TokenizerRecord(
        kind="wordpiece",
        sha256=sha256_of(folder / TOKENIZER_FILE),
        vocabulary_size=VOCABULARY,
        special_tokens=SPECIAL,
    )


def print_table(speeds: dict[str, list[Speed]], arguments: argparse.Namespace, length: int) -> None:
    """Print medians, quartiles and ratios to the raw memory map."""
    from tabulate import tabulate

    millions = arguments.sequences * length / 1e6
    reference = statistics.median(speed.wall for speed in next(iter(speeds.values())))
    rows = []
    for name, turns in speeds.items():
        low, wall, high = statistics.quantiles([speed.wall for speed in turns], n=4)
        processor = statistics.median(speed.processor for speed in turns)
        rows.append(
            (
                name,
                f"{millions * wall:,.1f}",
                f"{millions * low:,.1f} - {millions * high:,.1f}",
                f"{millions * processor:,.1f}",
                f"{wall / reference:.3f}",
            )
        )
    headers = ("", "M tokens/s", "quartiles", "by processor time", "x raw")
    print(
        f"\n{arguments.sequences} x {length} tokens a batch, {arguments.tokens / 1e6:,.0f} M "
        f"tokens of {VOCABULARY:,} kinds, {arguments.turns} turns of {arguments.seconds} s"
    )
    print(tabulate(rows, headers=headers, disable_numparse=True))


if __name__ == "__main__":
    run_program(lambda _: main())
