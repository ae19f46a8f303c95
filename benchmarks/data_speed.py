"""Time the build of shards against the bare tokenizer, and the loader against a memory map.

    python benchmarks/data_speed.py [--corpus FILE] [--megabytes 20] [--rounds 5]

One thread; the variants take turns, and the first turn of each is not counted. `build` reads,
cleans, drops repetitions, splits sentences, encodes, packs and writes; the bare tokenizer encodes
the same paragraphs in memory. The loader reads these shards: sequences as they are, masked by
tokens, words and spans, and by Hugging Face's datasets and collator (`pip install '.[hub]'`).
Megabytes or million tokens a second of processor time and of wall time. The default text is the
documentation of the installed Python packages.
"""

import argparse
import contextlib
import io
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

import numpy as np
from tabulate import tabulate
from tokenizers import Tokenizer

from data_prep.files.program import run_program
from data_prep.pipeline.build import build
from data_prep.settings import PYTHON_DOCS, BuildSettings
from data_prep.shards.format import ShardSet, open_shards
from data_prep.sources.source import Document
from data_prep.sources.spec import open_source

VOCABULARY, LENGTH, SEQUENCES = 8192, 128, 256
BATCHES = 40  # of a turn
SPECIAL = ("pad", "unk", "cls", "sep", "mask")


def main() -> None:
    """Time all variants and print a table."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--corpus", type=Path, help="plain text; default: python-docs")
    options.add_argument("--megabytes", type=float, default=20, help="of the text that is used")
    options.add_argument("--rounds", type=int, default=5, help="counted turns of each variant")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text.txt"
        write_text(text, given.corpus, round(given.megabytes * 1e6))
        began = time.process_time()
        build_quietly(text, folder / "shards", vocabulary_size=VOCABULARY)
        seconds, megabytes = time.process_time() - began, text.stat().st_size / 1e6
        print(f"{megabytes:.1f} MB; a build that trains its tokenizer too: {seconds:.1f} CPU s")
        print_table("MB", megabytes, building(text, folder), given.rounds)
        tokens = BATCHES * SEQUENCES * LENGTH / 1e6
        print_table("M tokens", tokens, loading(open_shards(folder / "shards")), given.rounds)


def write_text(file: Path, corpus: Path | None, size: int) -> None:
    """Write the first `size` bytes of the corpus, up to the end of a line."""
    if corpus is not None:
        with corpus.open("rb") as stream:
            file.write_bytes(stream.read(size).rpartition(b"\n")[0])
        return
    source = open_source(PYTHON_DOCS)
    with file.open("w", encoding="utf-8") as stream:
        for found in source.read():
            if isinstance(found, Document):
                stream.writelines(f"{text}\n" for text in [*source.paragraphs(found), ""])
            if stream.tell() >= size:
                return


def build_quietly(text: Path, folder: Path, **settings: object) -> None:
    """Build in this process, without progress in the terminal."""
    with contextlib.redirect_stderr(io.StringIO()):
        made = BuildSettings(corpus=(str(text),), sequence_length=LENGTH, **settings)
        build(made, folder, workers=1)


def building(text: Path, folder: Path) -> dict[str, Callable[[], object]]:
    """Return the bare tokenizer, and a build with the same one."""
    file = folder / "shards" / "tokenizer.json"
    tokenizer, paragraphs = Tokenizer.from_file(str(file)), text.read_text("utf-8").split("\n")

    def encode() -> None:
        for first in range(0, len(paragraphs), 1000):
            tokenizer.encode_batch_fast(paragraphs[first : first + 1000], add_special_tokens=False)

    def build_again() -> None:
        build_quietly(text, folder / "again", tokenizer=str(file))
        shutil.rmtree(folder / "again")

    return {"encode_batch_fast": encode, "build": build_again}


def loading(shards: ShardSet) -> dict[str, Callable[[], object]]:
    """Return the ways to read batches; each call reads `BATCHES`."""
    from pretrain.config.recipe import load_settings
    from pretrain.data.batches import Place, TrainingBatches, batches_from

    def batches(masking: str) -> Iterator[object]:
        words = ["--data.shards", str(shards.folder), "--data.masking", masking]
        place = Place(SEQUENCES, rank=0, world_size=1)
        dataset = TrainingBatches(shards, load_settings("tiny_cpu", words), place)
        return batches_from(dataset, 0, 1 << 40, pin_memory=False)

    split = shards.split("train")
    rows = split.read(np.arange(split.num_sequences))
    generator = np.random.default_rng(0)

    def raw() -> Iterator[object]:
        while True:
            chosen = generator.integers(0, len(rows), SEQUENCES)
            yield np.take(rows, chosen, axis=0).astype(np.int64)

    ways = {"read, not masked": raw()}
    ways |= {kind: batches(kind) for kind in ("tokens", "words", "spans")}
    if find_spec("datasets"):
        ways["Hugging Face"] = their_batches(rows, shards.folder)

    def turn(way: Iterator[object]) -> Callable[[], object]:
        return lambda: [next(way) for _ in range(BATCHES)]

    return {name: turn(way) for name, way in ways.items()}


def their_batches(rows: np.ndarray, folder: Path) -> Iterator[object]:
    """Yield batches of Hugging Face's memory-mapped rows, masked as in its Trainer."""
    from datasets import Dataset, disable_progress_bars, load_from_disk
    from torch.utils.data import DataLoader
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    disable_progress_bars()
    Dataset.from_dict({"input_ids": list(rows)}).save_to_disk(str(folder / "arrow"))
    names = {f"{name}_token": f"[{name.upper()}]" for name in SPECIAL}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **names)
    collate = DataCollatorForLanguageModeling(tokenizer)
    data = load_from_disk(str(folder / "arrow"))
    while True:
        yield from DataLoader(data, batch_size=SEQUENCES, shuffle=True, collate_fn=collate)


def print_table(
    unit: str, amount: float, variants: dict[str, Callable[[], object]], rounds: int
) -> None:
    """Let the variants take turns; print their speeds, and the ratio to the first one."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for _ in range(1 + rounds):
        for name, action in variants.items():
            wall, processor = time.perf_counter(), time.process_time()
            action()
            passed = time.perf_counter() - wall
            seconds[name].append((time.process_time() - processor, passed))
    speeds = {
        name: [amount / statistics.median(column) for column in zip(*spent[1:], strict=True)]
        for name, spent in seconds.items()
    }
    first = next(iter(speeds.values()))
    rows = [[name, *found, found[0] / first[0]] for name, found in speeds.items()]
    headers = ("", f"{unit} a CPU second", f"{unit} a second", "x the first")
    print(tabulate(rows, headers=headers, floatfmt=("", ".2f", ".2f", ".3f")), flush=True)


if __name__ == "__main__":
    run_program(lambda _: main())
