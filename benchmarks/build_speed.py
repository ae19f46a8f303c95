"""Compare the speed of `build` on one core with the bare tokenizer on the same text.

    python benchmarks/build_speed.py [--corpus FILE --megabytes 20 --vocabulary 30000 --rounds 5]

Everything runs on one thread of one process, and the variants alternate. `build` reads, cleans,
de-duplicates, splits sentences, encodes, packs, writes and computes checksums; the bare tokenizer
encodes paragraphs in memory and discards the result. Both use the same WordPiece tokenizer, trained
beforehand; its training is timed separately. The default text is the documentation of the installed
Python packages.
"""

import argparse
import contextlib
import io
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

from data_prep.files.program import run_program
from data_prep.pipeline.build import build
from data_prep.settings import PYTHON_DOCS, BuildSettings
from data_prep.sources.source import RawDocument
from data_prep.sources.spec import open_source

PARAGRAPHS_PER_BATCH = 1000


def main() -> None:
    """Time all variants and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, help="plain text; default: python-docs")
    parser.add_argument("--megabytes", type=float, default=20, help="size of the text that is used")
    parser.add_argument("--vocabulary", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5, help="counted runs of each variant")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        write_text(text, arguments.corpus, round(arguments.megabytes * 1e6))
        paragraphs = text.read_text(encoding="utf-8").split("\n")
        tokenizer, seconds = train(text, arguments.vocabulary, Path(folder))
        megabytes = text.stat().st_size / 1e6
        print(f"{megabytes:.1f} MB; a build that trains its tokenizer too: {seconds:.1f} CPU s")
        variants: dict[str, Callable[[], None]] = {
            "encode_batch": lambda: encode(tokenizer, paragraphs, "encode_batch"),
            "encode_batch_fast": lambda: encode(tokenizer, paragraphs, "encode_batch_fast"),
        }
        for splitter in ("sentencex", "spacy"):
            settings = BuildSettings(
                corpus=(str(text),),
                sentences=splitter,
                tokenizer=f"{folder}/tokenizer.json",
                sequence_length=128,
            )
            variants[f"build, {splitter}"] = partial(build_once, settings, Path(folder) / "shards")
        print_table(alternate(variants, arguments.rounds), megabytes)


def write_text(file: Path, corpus: Path | None, size: int) -> None:
    """Write the first `size` bytes of the corpus, up to the end of a line."""
    if corpus is not None:
        with corpus.open("rb") as stream:
            file.write_bytes(stream.read(size).rpartition(b"\n")[0])
        return
    source = open_source(PYTHON_DOCS)
    with file.open("w", encoding="utf-8") as stream:
        for raw in source.raw_documents():
            if isinstance(raw, RawDocument):
                stream.writelines(f"{text}\n" for text in [*source.parse(raw).paragraphs, ""])
            if stream.tell() >= size:
                return


def train(text: Path, vocabulary: int, folder: Path) -> tuple[Tokenizer, float]:
    """Build once with a new tokenizer; return the tokenizer and the CPU seconds."""
    settings = BuildSettings(corpus=(str(text),), vocabulary_size=vocabulary, sequence_length=128)
    start = time.process_time()
    build_quietly(settings, folder / "trained")
    seconds = time.process_time() - start
    shutil.copy(folder / "trained" / "tokenizer.json", folder / "tokenizer.json")
    return Tokenizer.from_file(str(folder / "tokenizer.json")), seconds


def encode(tokenizer: Tokenizer, paragraphs: list[str], method: str) -> None:
    """Encode all paragraphs."""
    function = {
        "encode_batch": tokenizer.encode_batch,
        "encode_batch_fast": tokenizer.encode_batch_fast,
    }[method]
    for first in range(0, len(paragraphs), PARAGRAPHS_PER_BATCH):
        function(paragraphs[first : first + PARAGRAPHS_PER_BATCH], add_special_tokens=False)


def build_once(settings: BuildSettings, folder: Path) -> None:
    """Build in this process and remove the folder."""
    build_quietly(settings, folder)
    shutil.rmtree(folder)


def build_quietly(settings: BuildSettings, folder: Path) -> None:
    """Build in this process, without progress in the terminal."""
    with contextlib.redirect_stderr(io.StringIO()):
        build(settings, folder, workers=1)


def alternate(
    variants: dict[str, Callable[[], None]], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Run the variants alternately; return CPU and wall seconds; the first round warms up."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, run in variants.items():
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            if number:
                seconds[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    return seconds


def print_table(seconds: dict[str, list[tuple[float, float]]], megabytes: float) -> None:
    """Print medians, spread, and the speed relative to encode_batch."""
    reference = statistics.median(cpu for cpu, _ in seconds["encode_batch"])
    print(f"{'':22}{'CPU s, median':>14}{'range':>16}{'wall s':>9}{'MB/s':>7}{'of bare':>9}")
    for name, runs in seconds.items():
        cpu = sorted(cpu for cpu, _ in runs)
        median, wall = statistics.median(cpu), statistics.median(wall for _, wall in runs)
        print(
            f"{name:22}{median:14.2f}{cpu[0]:9.2f} -{cpu[-1]:5.2f}{wall:9.2f}"
            f"{megabytes / median:7.2f}{reference / median:9.0%}"
        )


if __name__ == "__main__":
    run_program(lambda _: main())
