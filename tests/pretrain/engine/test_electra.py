"""Replaced-token detection in the engine and in a run: stages, ranks, evaluation, resume."""

import shutil

import pytest
import torch

from data_prep.shards.format import open_shards
from pretrain.config.recipe import load_settings
from pretrain.convert.pretrained import load_pretrained
from pretrain.data.batches import HeldOutBatches, Place
from pretrain.engine.parameter_groups import parameter_groups
from pretrain.model.objectives.catalog import build_objective
from tests.pretrain.conftest import lines
from tests.pretrain.engine import training_case as case
from tests.pretrain.engine.test_engine import FP32, run_case

ELECTRA = ("--objective", "replaced_token_detection", "--electra.generator_width", "0.5")
TUPE = ("--model.positions", "tupe-r", "--optimizer.relative_rate", "16")
DROP = (
    *("--layer_drop.schedule", "constant", "--layer_drop.theta_bar", "0.4"),
    *("--layer_drop.draw_per", "step"),
)
SCALES = ([1.25, 0.0, 2.0], [0.0, 1.5, 2.0])
RUN = (*ELECTRA, *TUPE, *DROP, "--checkpoint.every_steps", "10", "--log_every_steps", "5")


@pytest.mark.ranks
def test_zero_stages_1_and_3_are_the_plain_pytorch_loop_and_resume(tmp_path):
    """Both networks, with blocks skipped for whole steps; the draws do not depend on the rank."""
    words = (*ELECTRA, "--model.positions", "tupe-r")
    plain = case.reference(case.case_settings(*words))
    for name, found in run_case(2, tmp_path, FP32[1::2], *words).items():
        # engines: 1e-6 relative, the sums run in another order
        assert found["losses"] == pytest.approx(plain.losses, rel=2e-6), name
        assert found["norms"] == pytest.approx(plain.norms, rel=1e-5), name
        assert found["resumed"] == found["losses"][3:], name


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


def test_a_run_that_was_killed_has_the_lines_of_the_straight_one(run, command, tmp_path):
    killed = shutil.copytree(run, tmp_path / "killed")
    (killed / "result.json").unlink()
    shutil.rmtree(killed / "checkpoints" / "step_00000020")
    status, _, errors = command.run(["train", str(killed), "--resume"])
    assert status == 0, errors[-3000:]
    for name in ("metrics.jsonl", "evals.jsonl"):
        assert lines(killed, name) == lines(run, name)
    ends = [load_pretrained(folder).weights for folder in (run, killed)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


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


def test_frequencies_are_the_bias_of_the_generator(command, tmp_path):
    words = (*ELECTRA, "--model.output_bias", "frequencies", "--steps", "1")
    folder = command.train(tmp_path / "run", *words)
    bias_V = load_pretrained(folder).weights["generator.head.output_bias"]
    assert bias_V.exp().sum().item() == pytest.approx(1, rel=0.05)  # moved by one step


def test_weights_of_another_objective_do_not_begin_a_run(run, command):
    status, _, errors = command.run(command.words("--initial_weights", run))
    assert status == 1 and len(errors.strip().splitlines()) == 1, errors
    assert "were trained with objective=" in errors
    assert "and this run has objective=" in errors


def test_another_generator_does_not_fit_and_the_same_one_does(run, command, tmp_path):
    tupe = ("--objective", "replaced_token_detection", "--model.positions", "tupe-r")
    words = (*tupe, "--initial_weights", run, "--steps", "1", "--run-folder", tmp_path / "new")
    status, _, errors = command.run(command.words(*words, "--electra.generator_width", "1"))
    assert status == 1 and len(errors.strip().splitlines()) == 1, errors
    assert "there and 1.0 here; give --electra.generator_width 0.5" in errors
    status, _, errors = command.run(command.words(*words))
    assert status == 0, errors
