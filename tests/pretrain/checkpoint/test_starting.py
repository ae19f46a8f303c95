"""Where a run may start, and what counts as finished."""

import json
import math

import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.run_files import refuse_to_start, result_of
from tests.pretrain.run_files import RESULT


def test_a_run_starts_in_a_new_or_empty_folder_and_after_a_start_that_failed(tmp_path):
    refuse_to_start(tmp_path / "new")
    refuse_to_start(tmp_path)
    for name in ("lock", "tokenizer.json", "manifest.json", "ds_config.json"):
        (tmp_path / name).touch()
        (tmp_path / f"{name}.partial-17").touch()
        refuse_to_start(tmp_path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.json", ".git", "tupe_r", "lock2"])
def test_anything_else_in_the_folder_is_named(tmp_path, name):
    (tmp_path / "lock").touch()
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=f"{tmp_path} holds {name}, which is no part of a run"):
        refuse_to_start(tmp_path)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file is a file; choose a new folder"):
        refuse_to_start(tmp_path / "file")


def test_a_half_run_is_to_be_continued_and_a_finished_one_lengthened(tmp_path):
    (tmp_path / "run.json").touch()
    with pytest.raises(
        ConfigError, match="run; continue it with --resume, or choose another --run-f"
    ):
        refuse_to_start(tmp_path)
    (tmp_path / "result.json").touch()
    with pytest.raises(
        ConfigError, match="finished; --resume reports whether and how to train it longer"
    ):
        refuse_to_start(tmp_path)


def test_the_end_of_a_run_is_read_from_its_result(tmp_path):
    assert result_of(tmp_path) is None
    for loss, read in ((1.25, 1.25), (math.nan, math.inf)):
        (tmp_path / "result.json").write_text(json.dumps({**RESULT, "held_out_loss": loss}))
        end = result_of(tmp_path)
        assert (end.step, end.held_out_loss) == (40, read)
    for text in ("{", "{}", json.dumps({**RESULT, "step": "7"})):
        (tmp_path / "result.json").write_text(text)
        with pytest.raises(ConfigError, match=r"result.json is damaged.*; restore it from a copy"):
            result_of(tmp_path)
