"""docs/SPEED.md is true: what it refuses is refused, and of the rest a choice is tried out."""

import itertools
import json

import pytest

from pretrain.config.ds_config import DS_CONFIGS, read_ds_config
from pretrain.distributed.ranks import start_ranks
from tests.forked_command import run_module

from .support_matrix import trial
from .support_matrix.cells import OBJECTIVES, PRECISIONS, STAGES, Cell, chosen_cells, supported
from .support_matrix.table import DOCUMENT, block, support_table
from .support_matrix.trial import complaint_of

# A block rests now and then, at stage 3. What bf16 shows, fp32 shows all the more.
RESTING = Cell(3, "bf16", True, False, 2, False, OBJECTIVES[0], 1)


@pytest.fixture(scope="module")
def ranks():
    # Never stopped: DeepSpeed remembers the group as long as the process lives.
    return start_ranks()


def test_the_document_says_what_the_code_refuses():
    assert block(DOCUMENT.read_text()) == support_table()


@pytest.mark.slow("minutes: every two values of two settings")
@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_two_values_of_two_settings_work_together(tmp_path, ranks):
    output = tmp_path / "found.jsonl"
    status, _, errors = run_module("tests.support_matrix.trial", [output], ranks)
    assert status == 0, errors[-3000:]
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(found) == len(chosen_cells(ranks))
    assert [line for line in found if line[1]] == []


def test_the_choice_contains_every_two_values_that_can_meet():
    cells = [cell for cell in supported(1) + supported(2) if not cell.compiles]
    chosen = chosen_cells(1) + chosen_cells(2)
    assert len(chosen) < len(cells) / 8
    for one, other in itertools.combinations(range(len(RESTING)), 2):
        possible = {(cell[one], cell[other]) for cell in cells}
        assert {(cell[one], cell[other]) for cell in chosen} == possible


def test_the_shipped_configurations_are_those_that_are_tried():
    for stage, precision in itertools.product(STAGES, PRECISIONS):
        if (DS_CONFIGS / f"zero{stage}_{precision}.json").is_file():
            tried = read_ds_config(f"zero1_{precision}", "cuda")
            tried["zero_optimization"]["stage"] = stage
            assert read_ds_config(f"zero{stage}_{precision}", "cuda") == tried


def test_the_trial_notices_a_gradient_that_is_applied_twice(ranks, monkeypatch):
    """As stage 3 does to blocks that rest, where the engine does not clear its buffer."""
    build_engine = trial.build_engine

    def without_clearing(*arguments, **options):
        engine = build_engine(*arguments, **options)
        assert engine._stale_gradients is not None
        engine._stale_gradients = None
        return engine

    monkeypatch.setattr(trial, "build_engine", without_clearing)
    assert "weights differs by" in complaint_of(RESTING, trial.try_cell(RESTING, ranks))


def test_the_trial_notices_a_checkpoint_that_forgets_a_moment(ranks, monkeypatch):
    def forgetful(cell, ranks, snapshot, restore):
        for key, tensor in snapshot.tensors.items():
            if key.startswith("exp_avg_sq/"):
                tensor.mul_(1.01)
        with_files(cell, ranks, snapshot, restore)

    with_files = trial.with_files
    monkeypatch.setattr(trial, "with_files", forgetful)
    cell = RESTING._replace(stage=1)
    complaint = complaint_of(cell, trial.try_cell(cell, ranks))
    assert complaint == "a resumed engine trains differently"
