"""Replaced-token detection in the engine and in a run: stages, ranks, evaluation, resume."""

import json

import pytest
import torch

from data_prep.shards.format import open_shards
from pretrain.config.recipe import load_settings
from pretrain.convert.initial_weights import load_initial_weights
from pretrain.convert.pretrained import load_pretrained
from pretrain.data.batches import HeldOutBatches, Place
from pretrain.distributed.ranks import start_ranks
from pretrain.engine.parameter_groups import parameter_groups
from pretrain.model.cost import training_cost
from pretrain.model.objectives.catalog import build_objective
from tests.pretrain.conftest import lines
from tests.pretrain.engine import training_case as case

ELECTRA = ("--objective", "replaced_token_detection", "--electra.generator_width", "0.5")
TUPE = ("--model.positions", "tupe-r", "--optimizer.relative_rate", "16")
DROP = (
    *("--layer_drop.schedule", "constant", "--layer_drop.theta_bar", "0.4"),
    *("--layer_drop.draw_per", "step"),
)
RUN = (*ELECTRA, *TUPE, *DROP, "--steps", "10", "--log_every_steps", "5")


def test_it_is_the_plain_pytorch_loop_and_resumes(tmp_path):
    """Both networks, with blocks skipped for whole steps."""
    settings = case.case_settings(*ELECTRA, "--model.positions", "tupe-r")
    plain = case.reference(settings)
    found = case.whole_and_resumed(settings, start_ranks(), "zero1_fp32", tmp_path)
    # engines: 1e-6 relative, the sums run in another order
    assert found["losses"] == pytest.approx(plain.losses, rel=2e-6)
    assert found["norms"] == pytest.approx(plain.norms, rel=1e-5)
    assert found["resumed"] == found["losses"][3:]


def test_tables_of_both_networks_have_their_own_rates():
    words = (*ELECTRA, *TUPE, "--optimizer.position_rate", "4")
    settings = case.case_settings(*words)
    model = case.build_model(settings)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    factors = {
        names[id(parameter)]: group["learning_rate_factor"]
        for group in parameter_groups(model, settings.optimizer)
        for parameter in group["params"]
    }
    for network in ("encoder", "generator"):
        assert factors[f"{network}.positions.projected.position_embeddings.weight"] == 4
        assert factors[f"{network}.positions.relative.bucket_embeddings.weight"] == 16
        assert factors[f"{network}.blocks.0.feedforward.inner.weight"] == 1


@pytest.fixture(scope="module")
def run(command, tmp_path_factory):
    return command.train(tmp_path_factory.mktemp("runs") / "electra", *RUN)


def test_an_evaluation_has_the_parts_that_a_plain_pass_over_all_rows_has(run, shards):
    settings, opened = load_settings(run), open_shards(shards)
    model = build_objective(settings.model, settings.objective, settings.electra).eval()
    model.load_state_dict(load_pretrained(run).weights)
    rows = opened.split("valid").num_sequences
    everything = HeldOutBatches(opened, settings, Place(min(rows, 64), 0, 1))[0]
    with torch.no_grad():
        loss = model(*everything).item()
    last = lines(run, "evals.jsonl")[-1]
    assert last["loss"] == pytest.approx(loss, rel=1e-5)
    expected = {name: float(part.total / part.number) for name, part in model.parts.items()}
    assert last["parts"] == pytest.approx(expected, rel=1e-5)
    parts = last["parts"]
    total = parts["generator_loss"] + 50 * parts["discriminator_loss"]
    assert last["loss"] == pytest.approx(total, rel=1e-6)


def test_its_size_and_the_flops_of_both_networks_are_counted(run):
    settings = load_settings(run)
    kind = settings.objective, settings.electra
    of_pass = training_cost(settings.model, 32, *kind).of_pass  # two passes a step
    five_steps = 10 * of_pass(rows=4, predictions=20, kept=[1.0, 1.0], ranks=1)
    assert lines(run, "metrics.jsonl")[0]["full_depth_flops"] == pytest.approx(five_steps)
    model, result = build_objective(settings.model, *kind), (run / "result.json").read_text()
    assert json.loads(result)["parameters"] == sum(p.numel() for p in model.parameters())


@pytest.mark.ranks
def test_two_ranks_evaluate_and_train_as_one(run, command, tmp_path):
    """Whose last batches of an evaluation are filled with rows that do not count."""
    folder = tmp_path / "two"
    two = command.train(folder, *RUN, "--batch.micro_sequences", "2", ranks=2)
    for ours, theirs in zip(lines(two, "evals.jsonl"), lines(run, "evals.jsonl"), strict=True):
        assert ours["parts"] == pytest.approx(theirs["parts"], rel=1e-4)
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    for ours, theirs in zip(lines(two, "metrics.jsonl"), lines(run, "metrics.jsonl"), strict=True):
        assert ours["parts"] == pytest.approx(theirs["parts"], rel=1e-2)  # of few replaced tokens


def test_frequencies_are_the_bias_of_the_generator(shards):
    settings = load_settings("tiny_cpu", ELECTRA + ("--model.output_bias", "frequencies"))
    model = build_objective(settings.model, settings.objective, settings.electra)
    load_initial_weights(model, settings, open_shards(shards))
    assert model.generator.head.output_bias.exp().sum().item() == pytest.approx(1, rel=1e-5)
