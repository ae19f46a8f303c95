"""Texts through a loaded encoder, against transformers."""

import warnings

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import tupelo

TEXTS = ["abcd efgh.", ("abcd efgh ijkl", "mnop"), "[MASK] abc", ("a [MASK]", "[MASK].")]


@pytest.fixture(scope="module")
def encoder(run):
    return tupelo.load(run)


@pytest.fixture(scope="module")
def theirs(export):
    """The rows and the last states that transformers computes for TEXTS."""
    tokenizer = AutoTokenizer.from_pretrained(export, trust_remote_code=True)
    model = AutoModel.from_pretrained(export, trust_remote_code=True).eval()
    pairs = [text if isinstance(text, tuple) else (text, None) for text in TEXTS]
    batch = tokenizer.pad([tokenizer(*pair) for pair in pairs], return_tensors="pt")
    with torch.no_grad():
        return batch, model(**batch).last_hidden_state


def test_rows_states_and_vectors_are_those_of_transformers(encoder, theirs):
    batch, (rows, states) = encoder.encode(TEXTS), theirs
    mask = rows["attention_mask"]
    assert torch.equal(batch.ids, rows["input_ids"])
    assert torch.equal(batch.mask, mask.bool()) and torch.equal(batch.lengths, mask.sum(1))
    expected = states * mask[..., None]
    assert expected.std() > 0.5  # there is something to compare
    # fp32 through two blocks
    found = encoder.hidden_states(TEXTS, batch_size=3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    means = [row[: int(one.sum())].mean(0) for row, one in zip(states, mask, strict=True)]
    torch.testing.assert_close(encoder.embed(TEXTS), torch.stack(means), rtol=1e-4, atol=1e-5)
    found = encoder.embed(TEXTS, pooling="cls")
    torch.testing.assert_close(found, states[:, 0], rtol=1e-4, atol=1e-5)


def test_a_vector_depends_neither_on_the_other_texts_nor_on_the_batches(encoder):
    texts = [f"{'abcd ' * (number % 7)}efgh" for number in range(50)]
    alone = torch.cat([encoder.embed([text]) for text in texts])
    for size in (3, 50):
        # rows of another length: sums in another order
        found = encoder.embed((text for text in texts), batch_size=size)
        torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-5)


def test_a_long_text_is_cut_and_the_warning_says_so(encoder):
    texts = ["abcd " * 40, "abcd", ("ijkl " * 20, "mnop " * 30)]
    with pytest.warns(UserWarning, match="2 of 3 texts had more than 12 tokens and were cut; the"):
        batch = encoder.encode(texts, max_length=12)
    words = encoder.text_encoder
    assert batch.lengths.tolist() == [12, len(words.ids("abcd")), 12]
    assert batch.ids[2].tolist() == words.ids(*texts[2], max_length=12)
    with pytest.warns(UserWarning, match="more than 32 tokens") as found:
        assert encoder.hidden_states(texts).shape == (3, 32, 32)
    assert found[0].filename == __file__  # the caller's line
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode(["abcd"])


def test_dropout_is_off_whatever_the_mode_and_no_gradient_is_kept(run):
    encoder = tupelo.load(run)
    encoder.model.encoder.dropout.p = 0.5
    expected, guesses = encoder.hidden_states(TEXTS), encoder.fill_mask("abcd [MASK]")
    encoder.model.train()
    assert torch.equal(encoder.hidden_states(TEXTS), expected)
    assert encoder.fill_mask("abcd [MASK]") == guesses
    assert encoder.model.training and not expected.requires_grad
    probe = torch.nn.Linear(32, 2)
    probe(encoder.embed(TEXTS)).sum().backward()  # states can be what a probe is trained on
    assert probe.weight.grad.any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.encode([]), "there are no texts"),
        (lambda e: e.encode(("a", "b")), r"texts is a tuple of 2; give a list: \[\(first, second"),
        (lambda e: e.embed(["a", float("nan")]), r"texts\[1\] is \(nan,\); give a str, or a tup"),
        (lambda e: e.embed(["a"], pooling="max"), "pooling='max' does not exist; one of mean, cls"),
        (lambda e: e.encode(["a"], max_length=33), "max_length=33 .* has 32 positions; choose 3"),
        (lambda e: e.fill_mask("abcd"), r"has no \[MASK\]"),
        (lambda e: e.fill_mask("abcd " * 40 + "[MASK]"), "the model was trained on 32; shorten"),
    ],
)
def test_mistakes_are_one_line(encoder, call, message):
    with pytest.raises(ValueError, match=message) as refusal:
        call(encoder)
    assert "\n" not in str(refusal.value)


@pytest.mark.gpu
def test_a_gpu_computes_what_the_cpu_does(run, encoder):
    on_gpu = tupelo.load(run, device="cuda")
    assert on_gpu.encode(TEXTS).ids.is_cuda
    pairs = [
        (on_gpu.hidden_states(TEXTS), encoder.hidden_states(TEXTS)),
        (on_gpu.embed(TEXTS), encoder.embed(TEXTS)),
    ]
    for found, expected in pairs:
        # fp32, sums in another order; TF32 is off
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (
        on_gpu.fill_mask("abcd [MASK]")[0][0].token == encoder.fill_mask("abcd [MASK]")[0][0].token
    )
