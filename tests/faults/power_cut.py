"""Power cuts at random moments of a run and of a build, on a disk of its own.

    python -m tests.faults.power_cut FOLDER [--moments 20]      as root, 30 minutes

The command writes to a file system in an image. At a random moment it is stopped and the image
copied: what was not flushed is not in the copy. This one is repaired and mounted, and the same
command must end as an undisturbed one, bit for bit, or say in one line what is lost.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.material import STEPS, Material, Variant, synthetic_text
from tests.same_numbers.comparison import CLOCK, differences

MEBIBYTES = 300


def main():
    parser = argparse.ArgumentParser("python -m tests.faults.power_cut")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--moments", type=int, default=20)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    text, disk = folder / "long.txt", folder / "disk"
    disk.mkdir(parents=True)
    material = Material(folder)
    text.write_text("".join(synthetic_text(random.Random(number)) for number in range(40)))
    build = ["data", "build", "--corpus", text, "--to", disk / "made"]
    build += ["--data.sequence_length", 32, "--model.vocabulary_size", 256]
    run = [*material.words(Variant()), "--run-folder", disk / "made"]
    weights = f"step_{STEPS:08d}/*.safetensors"
    for words, again, files in (
        (run, ["train", disk / "made", "--resume"], ("metrics.jsonl", "evals.jsonl", weights)),
        (build, None, ("*.h5", "tokenizer.json")),
    ):
        start = time.monotonic()
        with mounted(empty_image(folder), disk):
            tupelo(words).wait()
            shutil.rmtree(folder / "good", ignore_errors=True)
            shutil.copytree(disk / "made", folder / "good")
        seconds, generator = time.monotonic() - start, random.Random(0)
        for number in range(arguments.moments):
            moment = generator.uniform(0.2, 1) * seconds
            copy = cut(folder, words, moment)
            with mounted(copy, disk):
                found, begun = [], any((disk / "made").glob("checkpoints/step_*"))
                if not (disk / "made" / "manifest.json").exists() or words is run:
                    process = tupelo(again if begun else words, folder / "output")
                    if process.wait():
                        found = (folder / "output").read_text().splitlines()[-3:]
                found = found or differences(folder / "good", disk / "made", files, CLOCK)
            print(f"{words[0]} {number} at {moment:.1f} s: {found[:3] or 'equal'}", flush=True)


def cut(folder, words, moment):
    """Return a copy of the disk at a moment after the start of the command, as a cut leaves it."""
    image, copy = empty_image(folder), folder / "copy"
    with mounted(image, folder / "disk"):
        process = tupelo(words)
        time.sleep(moment)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            if number == signal.SIGSTOP:
                subprocess.run(["cp", "--sparse=always", image, copy], check=True)
        process.wait()
    subprocess.run(["fsck.ext4", "-p", "-f", copy], capture_output=True)  # status 1: repaired
    return copy


def tupelo(words, output=os.devnull):
    command = [sys.executable, "-m", "tupelo", *map(str, words)]
    with open(output, "w") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)


def empty_image(folder):
    image = folder / "image"
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(MEBIBYTES << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    return image


@contextlib.contextmanager
def mounted(image, place):
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield
    finally:
        time.sleep(0.5)  # for killed processes to close their files
        subprocess.run(["umount", place], check=True)


if __name__ == "__main__":
    main()
