import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.settings import BuildSettings
from tests.forked_command import environment as variables
from tests.forked_command import run_module
from tests.same_numbers.comparison import CLOCK

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """A folder of small shards: sentences in which each word says much about the next."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklmnop", k=4)) for _ in range(60)]
    documents = []
    for _ in range(120):
        start = generator.randrange(60)
        chain = [words[(start + step * 7) % 60] for step in range(80)]
        sentences = [" ".join(chain[place : place + 8]) + "." for place in range(0, 80, 8)]
        documents.append(" ".join(sentences))
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    settings = BuildSettings(
        corpus=(str(folder / "text.txt"),),
        sequence_length=32,
        vocabulary_size=256,
        valid_fraction=0.1,
        deduplicate="none",
        rows_per_shard=128,
    )
    from data_prep.pipeline.build import build

    build(settings, folder / "shards", workers=1)
    return folder / "shards"


class Command:
    """Runs `python -m pretrain` in the checkout, as a user would."""

    def __init__(self, shards):
        self.shards = shards

    def words(self, *words):
        return [
            *("train", "tiny_cpu", "--data.shards", str(self.shards)),
            *("--engine.ds_config", "zero1_fp32", *map(str, words)),
        ]

    def start(self, words):
        return subprocess.Popen(
            [sys.executable, "-m", "pretrain", *words],
            cwd=ROOT,
            env=variables(),
            start_new_session=True,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, words, *, module="pretrain", ranks=1, **environment):
        """Return status, stdout and stderr of forked ranks."""
        return run_module(module, words, ranks, **environment)

    def train(self, folder, *words, **how):
        """Train to the end and return the folder; `how` as of `run`."""
        status, _, errors = self.run(self.words("--run-folder", folder, *words), **how)
        assert status == 0, errors[-3000:]
        return folder


@pytest.fixture(scope="session")
def command(shards):
    return Command(shards)


def lines(folder, name, *, without=CLOCK):
    """Return a file of the run folder as a list, without what depends on the clock."""
    rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in without} for row in rows]
