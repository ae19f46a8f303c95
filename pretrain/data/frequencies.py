"""How often the words of a text occur: the loss that needs no context.

A masked language model first learns the frequencies of words, and its loss rests near their
entropy until attention is of use. So the entropy marks where learning from context begins.
"""

import numpy
from numpy.typing import NDArray

from data_prep.masking import IGNORED
from data_prep.shards.format import ShardSet
from pretrain.config.settings import RunSettings
from pretrain.data.batches import HeldOutBatches, Place

# Counted at most: the share of a word that makes up 1e-5 of the text is known to 8 % by then.
MOST_TOKENS = 1 << 24
AT_ONCE = 4096

# A sample is so many runs of neighbouring sequences: a disk reads far more than one at a time.
RUNS = 64


def word_frequencies(shards: ShardSet, vocabulary_size: int) -> NDArray[numpy.float64]:
    """Return the share of each id in the training text [V], summing to 1.

    Special tokens are not predicted, so they are not counted. One is added to each count: a word
    that does not occur in the sample has a frequency too.
    """
    split, manifest = shards.split("train"), shards.manifest
    counts = numpy.zeros(vocabulary_size, dtype=numpy.int64)
    runs = [numpy.arange(split.num_sequences)]
    most = max(RUNS, MOST_TOKENS // manifest.sequence_length)
    if split.num_sequences > most:
        starts = numpy.arange(RUNS) * split.num_sequences // RUNS
        runs = [numpy.arange(start, start + most // RUNS) for start in starts]
    for numbers in runs:
        for first in range(0, len(numbers), AT_ONCE):
            ids = split.read(numbers[first : first + AT_ONCE])
            counts += numpy.bincount(ids.ravel(), minlength=vocabulary_size)
    counts[list(manifest.tokenizer.special_tokens.values())] = 0
    frequencies: NDArray[numpy.float64] = (counts + 1) / (counts + 1).sum()
    return frequencies


def frequency_entropy(shards: ShardSet, settings: RunSettings) -> float:
    """Return the held-out loss, in nats, of predicting every word by its frequency alone.

    It is the cross-entropy of the words that evaluations hide and the frequencies of the training
    text; where both have the same frequencies, their entropy.
    """
    frequencies = word_frequencies(shards, settings.model.vocabulary_size)
    batches = HeldOutBatches(shards, settings, Place(AT_ONCE, rank=0, world_size=1))
    labels = numpy.concatenate([batches[number].labels_M.numpy() for number in range(len(batches))])
    return float(-numpy.log(frequencies[labels[labels != IGNORED]]).mean())
