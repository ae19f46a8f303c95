"""The command `profile`, as a user starts it."""

import gzip
import json
import math
from argparse import Namespace

import pytest

from pretrain.commands.profile import take_count
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.profiling.phase_names import SHARES
from pretrain.schedules.layer_drop import scales_of_step
from pretrain.train.profile import WARM_UP_STEPS
from tests.pretrain.conftest import two_ranks
from tests.pretrain.train.recording.test_progress import (
    FULL_STEP,
    LEFT_OUT_OF_ROW,
    ROW_AND_BLOCK,
    step_flops,
)

DROPS = ("--layer_drop.schedule", "progressive", "--layer_drop.theta_bar", "0.1")


def profiled(command, folder, *words, **launcher):
    """Profile tiny_cpu, check that all went well and return what is printed and written."""
    # Of the recipe's own corpus there may be shards in this checkout.
    paths = ("--corpus", folder / "text.txt", "--to", folder)
    words = ("profile", "tiny_cpu", "--engine.ds_config", "zero1_fp32", *paths, *words)
    status, output, errors = command.run(list(map(str, words)), **launcher)
    assert status == 0, errors[-3000:]
    return output, json.loads((folder / "profile.json").read_text())


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile") / "new" / "folder"
    return (folder, *profiled(command, folder, "--steps", 4))


def test_the_trace_can_be_read_and_names_our_phases(whole):
    folder, output, _ = whole
    with gzip.open(folder / "trace.json.gz", "rt") as file:
        spans = [event.get("name") for event in json.load(file)["traceEvents"]]
    for name in SHARES[:-1]:
        assert f"phase/{name}" in spans
    assert spans.count("phase/forward") >= 3 * 2  # steps x micro-batches
    assert any(name.startswith("aten::") for name in spans if name)
    assert f"{folder / 'trace.json.gz'}; open it in https://ui.perfetto.dev" in output


def test_both_tables_are_printed_and_their_numbers_written(whole):
    _, output, numbers = whole
    assert "tiny_cpu: 4 steps of random ids, 1 rank(s)" in output
    for text in (*SHARES, "ms a step", "tokens/s", "samples/s", "model FLOPs utilisation"):
        assert text in output
    metrics = numbers["metrics"]
    assert sum(metrics["time_shares"].values()) == pytest.approx(1)
    assert metrics["flops"] == metrics["full_depth_flops"] == pytest.approx(4 * FULL_STEP)
    rate = numbers["matrix_rate"]["flops_per_second"]
    assert metrics["model_flops_utilisation"] == pytest.approx(
        metrics["flops"] / metrics["training_seconds"] / rate
    )
    assert numbers["matrix_rate"]["source"] in output and "measured at the start" in output
    operators = numbers["operators"]
    assert 1 < len(operators) <= 15 and all(row["name"] in output for row in operators)
    shares = [row["share"] for row in operators]
    assert shares == sorted(shares, reverse=True) and sum(shares) <= 1


def test_the_profile_of_another_recipe_is_not_replaced(command, whole, tmp_path):
    folder, *_ = whole
    before = (folder / "profile.json").read_bytes()
    words = ("--name", "other", "--steps", "1", "--to")
    status, _, errors = command.run(["profile", "tiny_cpu", *words, str(folder)])
    assert status == 1 and errors.strip() == (
        f"error: {folder / 'profile.json'} is of 'tiny_cpu'; choose another folder with --to"
    )
    assert (folder / "profile.json").read_bytes() == before
    for name, content in (("trace.json.gz", "mine"), ("profile.json", "{}")):
        (tmp_path / name).write_text(content)
        status, _, errors = command.run(["profile", "tiny_cpu", *words, str(tmp_path)])
        assert status == 1 and f"{tmp_path / name} is no profile; choose another" in errors


def test_real_rows_are_used_where_there_are_shards(command, tmp_path, shards):
    # more steps than the run itself has
    output, numbers = profiled(command, tmp_path, "--data.shards", shards, "--steps", 30)
    assert f"30 steps of rows of {shards}" in output
    assert numbers["metrics"]["time_shares"]["data"] > 0


def test_layer_drop_is_in_its_steady_state_unless_full_depth_is_asked_for(command, tmp_path):
    _, dropping = profiled(command, tmp_path / "dropping", *DROPS, "--steps", 25)
    metrics = dropping["metrics"]
    assert metrics["theta"] == pytest.approx(0.1)
    settings = load_settings("tiny_cpu", DROPS)
    steps = [
        [2 - scales.count(0) for scales in scales_of_step(step, settings, theta=0.1, count=2)]
        for step in range(WARM_UP_STEPS, WARM_UP_STEPS + 25)
    ]
    assert metrics["flops"] == pytest.approx(sum(step_flops(*blocks) for blocks in steps))
    assert sum(metrics["keep_rates"]) == pytest.approx(sum(map(sum, steps)) / 50)
    assert sum(metrics["keep_rates"]) == pytest.approx(2 - 0.45 - 0.9, abs=0.3)  # 50 coins a block
    _, full = profiled(command, tmp_path / "full", *DROPS, "--steps", 2, "--full-depth")
    metrics = full["metrics"]
    assert metrics["flops"] == metrics["full_depth_flops"] == metrics["expected_flops"]
    assert metrics["theta"] == 1


def test_a_run_that_restarts_is_profiled_at_its_last_step(command, tmp_path):
    """Step 20 begins one step after the restart, not at the end of one curve of 20 steps."""
    restarts = ("--restarts_after", "18", "--layer_drop.gamma", "0.5")
    _, numbers = profiled(command, tmp_path, *DROPS, *restarts, "--steps", 2)
    assert numbers["metrics"]["theta"] == pytest.approx(0.1 + 0.9 * math.exp(-0.5))


def test_a_run_of_hours_is_profiled_at_its_end_too(command, tmp_path):
    _, numbers = profiled(command, tmp_path, *DROPS, "--hours", "5", "--steps", 2)
    metrics = numbers["metrics"]
    assert metrics["theta"] == pytest.approx(0.1)
    dropped = (0.45 + 0.9) * ROW_AND_BLOCK - 0.45 * 0.9 * LEFT_OUT_OF_ROW
    expected = metrics["full_depth_flops"] - 2 * 8 * dropped
    assert metrics["expected_flops"] == pytest.approx(expected)


@pytest.mark.slow("two ranks are profiled like one")
@pytest.mark.ranks
def test_of_two_ranks_the_first_prints_once_what_is_exchanged(command, tmp_path):
    words = ("--steps", 2, "--batch.micro_sequences", 4)
    output, numbers = profiled(command, tmp_path, *words, launcher=two_ranks("torchrun"))
    assert output.count("2 steps of random ids, 2 rank(s)") == 1
    assert set(numbers["metrics"]["payload_bytes_per_step"]) == {
        "all_reduce",
        "all_gather_into_tensor",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data.shards", "nowhere"), "there are no shards in nowhere"),
        (("--to", "/dev/null/x"), "cannot write the profile to /dev/null/x"),
    ],
)
def test_a_profile_that_cannot_be_is_refused_in_one_line(command, words, message):
    status, _, errors = command.run(["profile", "tiny_cpu", *words])
    assert status == 1
    assert message in errors and len(errors.strip().splitlines()) == 1


def test_steps_that_are_no_number_are_refused_and_the_run_keeps_its_own():
    for given in ("0", "ten", "-1"):
        with pytest.raises(ConfigError, match=f"--steps {given} must be a number of steps"):
            take_count(Namespace(steps=given))
    arguments = Namespace(recipe="tiny_cpu", steps="7")
    assert take_count(arguments) == 7 and arguments == Namespace(recipe="tiny_cpu")
    assert take_count(arguments) == 10
