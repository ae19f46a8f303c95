import collections

import numpy
import pytest
import scipy.stats
import torch

from data_prep.masking import IGNORED
from pretrain.convert.initial_weights import load_initial_weights
from pretrain.data import frequencies
from pretrain.data.batches import HeldOutBatches, Place
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from tests.pretrain.data.conftest import settings


@pytest.mark.parametrize("is_long", [False, True])
def test_frequencies_are_counts_of_the_training_text_or_of_runs_over_it_plus_one(
    opened, monkeypatch, is_long
):
    monkeypatch.setattr(frequencies, "AT_ONCE", 7)
    split = opened.split("train")
    numbers = list(range(split.num_sequences))
    if is_long:
        monkeypatch.setattr(frequencies, "MOST_TOKENS", opened.manifest.sequence_length * 11)
        monkeypatch.setattr(frequencies, "RUNS", 5)
        starts = [run * split.num_sequences // 5 for run in range(5)]
        numbers = [number for start in starts for number in (start, start + 1)]
        assert split.num_sequences > 2 * len(numbers)
    counted = collections.Counter(split.read(numpy.array(numbers)).ravel().tolist())
    special = set(opened.manifest.tokenizer.special_tokens.values())
    counts = [1 + (0 if number in special else counted[number]) for number in range(1024)]
    found = frequencies.word_frequencies(opened, 1024)
    numpy.testing.assert_allclose(found, numpy.array(counts) / sum(counts), rtol=1e-12)


def test_the_entropy_is_that_of_scipy_plus_the_divergence_from_the_training_text(opened, shards):
    chosen = settings(shards)
    batches = HeldOutBatches(opened, chosen, Place(8, rank=0, world_size=1))
    labels = [one for batch in map(batches.__getitem__, range(len(batches))) for one in batch[2]]
    words = [int(label) for label in labels if label != IGNORED]
    shares = numpy.bincount(words, minlength=1024) / 1.0
    trained = frequencies.word_frequencies(opened, 1024)
    expected = scipy.stats.entropy(shares) + scipy.stats.entropy(shares, trained)
    assert frequencies.frequency_entropy(opened, chosen) == pytest.approx(expected, rel=1e-10)


def test_a_model_that_sees_no_context_starts_at_the_entropy(opened, shards):
    chosen = settings(shards, "--model.output_bias", "frequencies")
    model = MaskedLanguageModel(chosen.model)
    assert load_initial_weights(model, chosen, opened) is None
    torch.nn.init.zeros_(model.encoder.token_embeddings.weight)
    batches = HeldOutBatches(opened, chosen, Place(1024, rank=0, world_size=1))
    assert len(batches) == 1
    found = model(*batches[0]).item()
    assert found == pytest.approx(frequencies.frequency_entropy(opened, chosen), rel=1e-5)
