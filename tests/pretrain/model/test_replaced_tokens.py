"""Replaced-token detection against transformers' ELECTRA and the softmax itself."""

import math
from functools import partial

import pytest
import torch
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from data_prep.masking import IGNORED
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import ElectraSettings, ModelSettings
from pretrain.model.cost import parameters_by_group, training_cost
from pretrain.model.objectives.catalog import build_objective
from pretrain.model.objectives.replaced_tokens import filled_in, generator_settings
from pretrain.model.objectives.sampling import sampled_words, uniform_of_rows
from tests.pretrain.model.their_models import copy_layer, copy_network, their_config

ELECTRA = ("--objective", "replaced_token_detection", "--electra.generator_width", "0.5")
STOCK = ("--model.positions", "bert-a", "--model.norm", "post")
SPECIAL = 5


def run_settings(*words):
    return load_settings("tiny_cpu", (*ELECTRA, *words))


def built(*words, seed=0):
    settings = run_settings(*words)
    torch.manual_seed(seed)
    model = build_objective(settings.model, settings.objective, settings.electra)
    with torch.no_grad():  # larger than 0.02, so that answers depend on the input
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "positions" not in name:
                parameter.mul_(5)
    return model


def batch(rows=3, seed=1):
    """Return ids, positions, labels; the last prediction of each row is IGNORED."""
    draws = torch.Generator().manual_seed(seed)
    ids_BS = torch.randint(SPECIAL, 1000, (rows, 32), generator=draws)
    columns = torch.stack([torch.randperm(32, generator=draws)[:5].sort()[0] for _ in range(rows)])
    positions_M = (columns + torch.arange(rows)[:, None] * 32).flatten()
    labels_M = ids_BS.flatten()[positions_M].clone()
    ids_BS.view(-1)[positions_M[::2]] = 4
    labels_M[4::5] = IGNORED
    return ids_BS, positions_M, labels_M


@torch.no_grad()
def their_networks(model, settings):
    """Return transformers' generator and discriminator with our weights."""
    config = partial(their_config, ElectraConfig, embedding_size=settings.model.width)
    generator = generator_settings(settings.model, settings.electra)
    masked = ElectraForMaskedLM(config(generator)).eval()
    copy_network(model.encoder, model.generator, masked.electra)
    copy_layer(model.generator.projection, masked.electra.embeddings_project)
    copy_layer(model.generator.head.dense, masked.generator_predictions.dense)
    copy_layer(model.generator.head.norm, masked.generator_predictions.LayerNorm)
    masked.generator_lm_head.weight.copy_(model.encoder.token_embeddings.weight)
    masked.generator_lm_head.bias.copy_(model.generator.head.output_bias)
    finder = ElectraForPreTraining(config(settings.model)).eval()
    copy_network(model.encoder, model.encoder, finder.electra)
    copy_layer(model.head.dense, finder.discriminator_predictions.dense)
    copy_layer(model.head.dense_prediction, finder.discriminator_predictions.dense_prediction)
    return masked, finder


def test_stock_electra_has_the_loss_and_the_gradients_of_transformers_in_every_parameter():
    model, settings = built(*STOCK), run_settings(*STOCK)
    masked, finder = their_networks(model, settings)
    table = finder.electra.embeddings.word_embeddings.weight
    masked.electra.embeddings, masked.generator_lm_head.weight = finder.electra.embeddings, table
    ids_BS, positions_M, labels_M = batch()
    loss = model(ids_BS, positions_M, labels_M)
    loss.backward()

    hidden_MD = model.generator(model.encoder.embed(ids_BS), positions_M)
    words_M = sampled_words(
        model.generator.head, hidden_MD, table, uniform_of_rows(ids_BS, positions_M)
    )
    filled_BS, replaced_BS = filled_in(ids_BS, positions_M, labels_M, words_M)
    labels_BS = torch.full_like(ids_BS, IGNORED).flatten().scatter(0, positions_M, labels_M)
    masked_loss = masked(ids_BS, labels=labels_BS.view_as(ids_BS)).loss
    theirs = masked_loss + 50 * finder(filled_BS, labels=replaced_BS.long()).loss
    torch.testing.assert_close(loss, theirs, rtol=1e-5, atol=1e-5)
    theirs.backward()

    of_gradients = built(*STOCK)  # a model whose weights are the gradients, under their names
    with torch.no_grad():
        for weight, trained in zip(of_gradients.parameters(), model.parameters(), strict=True):
            weight.copy_(trained.grad)
    for theirs, ours in zip((masked, finder), their_networks(of_gradients, settings), strict=True):
        expected = {name: weight.grad for name, weight in theirs.named_parameters()}
        assert expected.pop("electra.embeddings.token_type_embeddings.weight") is not None
        found = dict(ours.named_parameters())
        for name, gradient in expected.items():
            difference = (found[name].detach() - gradient).norm()
            # Of a bias of keys, which softmax ignores, nothing but rounding is left.
            assert difference < 1e-4 * gradient.norm() + 1e-5, name


def test_a_word_that_was_guessed_right_is_not_replaced():
    ids_BS, places_M = torch.tensor([[9, 4, 4], [7, 4, 8]]), torch.tensor([1, 2, 4, 5])
    labels_M, drawn_M = torch.tensor([5, 6, 3, IGNORED]), torch.tensor([5, 8, 2, 1])
    filled_BS, replaced_BS = filled_in(ids_BS, places_M, labels_M, drawn_M)
    assert filled_BS.tolist() == [[9, 5, 8], [7, 2, 8]]
    assert replaced_BS.tolist() == [[False, False, True], [False, True, False]]


def test_words_are_drawn_as_often_as_the_softmax_says():
    model = built().eval()
    head, table_VD = model.generator.head, model.encoder.token_embeddings.weight[:12]
    torch.manual_seed(3)
    with torch.no_grad():
        head.output_bias = torch.nn.Parameter(torch.randn(12) * 2)
        hidden_D = torch.randn(32)
        shares_V = head.logits(hidden_D[None], table_VD).softmax(1)[0]
        draws = 400_000
        words = sampled_words(head, hidden_D.expand(draws, -1), table_VD, torch.rand(draws))
    counts_V = torch.bincount(words, minlength=12)
    expected_V = shares_V.double() * draws
    chi_squared = ((counts_V - expected_V).square() / expected_V).sum().item()
    assert len(counts_V) == 12 and chi_squared < 31.3  # 99.9 % of 11 degrees of freedom


def test_in_bf16_the_bias_is_not_rounded():
    """Two words of logits 16.06 and 16, which bf16 rounds to one number."""
    model = built().eval()
    head, table_VD = model.generator.head, model.encoder.token_embeddings.weight[:2]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        head.output_bias = torch.nn.Parameter(torch.tensor([16.06, 16.0]))
        edges_M = torch.tensor([0.505, 0.51, 0.52])
        words = sampled_words(head, torch.zeros(3, 32), table_VD, edges_M)
    first = 1 / (1 + math.exp(-0.06))  # 0.515
    assert words.tolist() == [int(edge > first) for edge in edges_M.tolist()] == [0, 0, 1]


def test_a_word_of_probability_zero_is_never_drawn():
    model = built().eval()
    head, table_VD = model.generator.head, model.encoder.token_embeddings.weight
    with torch.no_grad():
        head.output_bias.fill_(-1e9)[[7, 9]] = 0
        edges_M = torch.tensor([0.0, 1 - 2**-24])
        words = sampled_words(head, torch.zeros(2, 32), table_VD, edges_M)
    assert words.tolist() == [7, 9]


def test_draws_depend_on_the_row_alone():
    ids_BS, positions_M, _ = batch(rows=4)
    uniform_M = uniform_of_rows(ids_BS, positions_M)
    alone = uniform_of_rows(ids_BS[2:3], positions_M[10:15] - 64)
    assert torch.equal(alone, uniform_M[10:15])
    ids_BS = torch.randint(0, 9999, (500, 128), generator=torch.Generator().manual_seed(0))
    many_M = uniform_of_rows(ids_BS, torch.arange(500 * 128))
    assert many_M.min() >= 0 and many_M.max() < 1
    assert abs(many_M.mean() - 0.5) < 0.005 and abs(many_M.var() - 1 / 12) < 0.001
    assert len(many_M.unique()) > 0.99 * len(many_M)


@pytest.mark.parametrize("trains", [False, True])
def test_draws_leave_the_generator_of_random_numbers_alone(trains):
    model = built().train(trains)
    inputs = batch()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first, second = model(*inputs), model(*inputs)
    assert torch.equal(first, second) and torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("positions", "own"),
    [
        ("bert-r", {"relative.bucket_embeddings.weight"}),
        ("rope", set()),
        (
            "tupe-a",
            {f"projected.{name}.weight" for name in ("position_embeddings", "query", "key", "norm")}
            | {"projected.norm.bias"},
        ),
    ],
)
def test_positions_of_the_attention_are_the_generators_own(positions, own):
    model = built("--model.positions", positions)
    parameters = dict(model.generator.positions.named_parameters())
    assert parameters.keys() == own
    for parameter in parameters.values():
        assert parameter.shape[-1] in (16, 1)  # its width, or its number of heads
    model(*batch()).backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_generator_as_wide_as_the_discriminator_projects_nothing():
    assert built("--electra.generator_width", "1").generator.projection is None


@pytest.mark.parametrize(
    ("width", "heads", "share", "expected"),
    [
        (768, 12, 1 / 3, (256, 4)),  # google-research/electra: base
        (1024, 16, 1 / 4, (256, 4)),  # large
        (256, 4, 1 / 4, (64, 1)),  # small
        (1024, 16, 1 / 3, (320, 5)),  # 341 is no multiple of 64
        (32, 2, 0.1, (16, 1)),
    ],
)
def test_a_generator_has_whole_heads_as_wide_as_the_discriminators(width, heads, share, expected):
    model = ModelSettings(width=width, num_heads=heads)
    shape = generator_settings(model, ElectraSettings(generator_width=share))
    assert (shape.width, shape.num_heads) == expected
    assert shape.head_width == model.head_width and shape.feedforward_width == 4 * shape.width


def test_a_generator_without_detection_is_refused():
    words = ("--objective", "masked_language_model", "--electra.generator_width", "0.5")
    with pytest.raises(ConfigError, match="generator_width has no effect with objective='masked"):
        load_settings("tiny_cpu", words)


@pytest.mark.parametrize("scales", [None, [1.0, 0.0]])
@pytest.mark.parametrize("positions", ["bert-a", "tupe-r"])
def test_counted_flops_are_those_of_pytorchs_flop_counter(positions, scales):
    from torch.utils.flop_counter import FlopCounterMode

    words = ("--model.positions", positions, *STOCK[2:])
    settings, model, rows = run_settings(*words), built(*words), 3
    inputs = batch(rows)
    with FlopCounterMode(display=False) as counter:
        model(*inputs, scales)
    cost = training_cost(settings.model, 32, settings.objective, settings.electra)
    ours = cost.of_pass(rows=rows, predictions=15, kept=scales or [1.0, 1.0], ranks=1) / 3
    drawn = 2 * 15 * 32 * 1024  # counted as a third of a product that is trained
    assert ours - drawn / 3 == pytest.approx(counter.get_total_flops() - drawn)


def test_the_parameters_of_the_generator_are_a_group():
    settings = run_settings()
    groups = parameters_by_group(settings.model, settings.objective, settings.electra)
    model = built()
    assert groups["generator"] == sum(p.numel() for p in model.generator.parameters())
    assert groups.pop("total") == sum(groups.values()) == sum(p.numel() for p in model.parameters())


def test_layer_drop_skips_the_same_blocks_of_both_networks():
    model = built()
    model(*batch(), [0.0, 1.5]).backward()
    for stack in (model.encoder, model.generator):
        assert all(p.grad is None for p in stack.blocks[0].parameters())
        assert all(p.grad is not None for p in stack.blocks[1].parameters())


def test_rows_without_predictions_count_in_no_part():
    model = built().eval()
    ids_BS, positions_M, labels_M = batch(rows=4)
    labels_M[10:] = IGNORED
    whole = model(ids_BS, positions_M, labels_M)
    parts = model.parts
    half = model(ids_BS[:2], positions_M[:10], labels_M[:10])
    torch.testing.assert_close(whole, half, rtol=1e-5, atol=1e-5)
    assert parts.keys() == model.parts.keys()
    for name, part in model.parts.items():
        assert torch.equal(part.number, parts[name].number), name


def test_parts_are_the_loss_and_count_what_was_found():
    model = built().train()
    loss = model(*batch())
    total = sum(part.weight * part.total / part.number for part in model.parts.values())
    torch.testing.assert_close(total, loss.detach(), rtol=1e-6, atol=0)
    mean = {name: float(part.total / part.number) for name, part in model.parts.items()}
    replaced, precision, recall = (
        mean[name] for name in ("replaced_share", "discriminator_precision", "discriminator_recall")
    )
    found = recall * replaced  # share of all tokens
    wrong = found / precision - found + replaced - found if precision else replaced
    assert mean["discriminator_accuracy"] == pytest.approx(1 - wrong)
