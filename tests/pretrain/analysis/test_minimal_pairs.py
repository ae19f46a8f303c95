"""Scores of sentences, against the definition: one token masked at a time, one row at a time."""

import pytest
import torch

from pretrain.analysis.measures.minimal_pairs import Paradigm, pseudo_log_likelihoods, solved
from pretrain.config.errors import ConfigError
from tests.pretrain.analysis.small_models import WORDS, small_model

CLS, SEP, MASK = 0, 1, 2


def test_a_score_is_the_sum_over_tokens_that_are_masked_alone(monkeypatch):
    monkeypatch.setattr("pretrain.analysis.measures.minimal_pairs.TOKENS_AT_ONCE", 40)
    model = small_model()
    torch.manual_seed(2)
    lengths = (5, 7, 5, 2, 5, 7, 3)  # batches of several, of one, and without a token
    sentences = [[CLS, *torch.randint(3, WORDS, (length - 2,)).tolist(), SEP] for length in lengths]
    expected = []
    for ids in sentences:
        score = 0.0
        for place in range(1, len(ids) - 1):
            hidden = [*ids[:place], MASK, *ids[place + 1 :]]
            with torch.no_grad():
                (logits,) = model.logits(torch.tensor([hidden]), torch.tensor([place]))
            score += float(logits.exp()[ids[place]].div(logits.exp().sum()).log())
        expected.append(score)
    assert pseudo_log_likelihoods(model, sentences, MASK) == pytest.approx(expected, rel=1e-5)
    assert expected[3] == 0.0
    assert len({round(score, 3) for score in expected}) == len(lengths)


def test_a_sentence_without_a_token_is_refused_instead_of_scoring_the_most():
    class Letters:
        special = {"mask": MASK}

        def pair_ids(self, text, *, max_length):
            return [CLS, *map(ord, text.strip()), SEP][:max_length]

    paradigm = Paradigm("odd", "odd", [("ab", " ")])
    with pytest.raises(ConfigError, match="odd has ' ', without a token; remove it"):
        solved(small_model(), Letters(), paradigm, longest_row=9, bar=None)
