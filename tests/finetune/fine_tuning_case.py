"""A tiny encoder with random weights, and tasks on random rows that it can learn."""

import random

import numpy
import torch

from finetune.protocol import Protocol
from finetune.tasks.task import Example, Task
from finetune.training.batches import TokenRows
from finetune.training.encoding import EncodedSplit, EncodedTask
from finetune.training.targets import Classes, Values
from pretrain.config.settings import ModelSettings
from pretrain.convert.pretrained import Pretrained
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel

VOCABULARY, LONGEST = 40, 30


def tiny_pretrained(**changes):
    shape = {"num_layers": 2, "width": 16, "num_heads": 2, "feedforward_width": 32}
    shape |= {"vocabulary_size": VOCABULARY, "max_sequence_length": 32}
    settings = ModelSettings(**shape | changes)
    torch.manual_seed(5)
    weights = MaskedLanguageModel(settings).state_dict()
    return Pretrained(settings, weights, None, "tiny", "/tiny", 7, LONGEST)


def protocol(**changes):
    return Protocol(**{"precision": "fp32", "epochs": 2, "batch": 8, "name": "test", **changes})


def random_split(count, seed, *, regression=False):
    """TokenRows whose label is whether token 10 is among the words, or how often."""
    generator = random.Random(seed)
    rows, labels = [], []
    for _ in range(count):
        words = [generator.randrange(11, VOCABULARY) for _ in range(generator.randrange(3, 20))]
        times = generator.randrange(3) if regression else generator.randrange(2)
        words[:times] = [10] * times
        generator.shuffle(words)
        rows.append([2, *words, 3])
        labels.append(float(times) if regression else times)
    examples = [Example((), label, str(n)) for n, label in enumerate(labels)]
    return EncodedSplit(TokenRows(rows, pad=0, longest=LONGEST), examples)


def tiny_task(*, regression=False, num_train=43):
    labels = () if regression else ("no", "yes")
    metrics = ("pearson", "spearman") if regression else ("accuracy", "f1")
    task = Task("tiny", labels, metrics, ("text",))
    return EncodedTask(
        task,
        Values(1.0, 0.8) if regression else Classes(2),
        random_split(num_train, 0, regression=regression),
        {"dev": random_split(30, 1, regression=regression)},
        {"test": random_split(9, 2, regression=regression)},
    )


class Notes:
    """A `SummaryWriter` that keeps what it receives, and how many rows were read."""

    def __init__(self):
        self.rows, self.points = 0, {}

    def read(self, rows):
        self.rows += rows

    def add_scalar(self, name, value, step):
        self.points.setdefault(name, {})[step] = value


def numbers(*values):
    return numpy.array(values, dtype=numpy.int64)
