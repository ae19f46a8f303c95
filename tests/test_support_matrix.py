"""docs/SPEED.md is true: what it refuses is refused, and of the rest a choice is tried out."""

import itertools
import json

import pytest

from pretrain.config.ds_config import DS_CONFIGS, read_ds_config
from tests.forked_command import run_module

from .support_matrix.cells import PRECISIONS, STAGES, chosen_cells
from .support_matrix.table import DOCUMENT, block, support_table


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


def test_the_shipped_configurations_are_those_that_are_tried():
    for stage, precision in itertools.product(STAGES, PRECISIONS):
        if (DS_CONFIGS / f"zero{stage}_{precision}.json").is_file():
            tried = read_ds_config(f"zero1_{precision}", "cuda")
            tried["zero_optimization"]["stage"] = stage
            assert read_ds_config(f"zero{stage}_{precision}", "cuda") == tried
