"""Which settings may differ when a run is resumed, and which may not."""

import json

import pytest

from pretrain.__main__ import main
from pretrain.checkpoint.resume import Resumption, plan_resumption
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import as_json
from pretrain.train.checks import obstacles, ranks_here
from pretrain.train.recording.run_folder import RunRecord
from pretrain.train.request import RunRequest
from pretrain.train.start import _resumption
from tests.pretrain.run_files import LAUNCH as ONE_RANK
from tests.pretrain.run_files import RESULT

LAUNCH = {**ONE_RANK, "world_size": 2}
DS_CONFIG = {"zero_optimization": {"stage": 1}}


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run.json").write_text(as_json(load_settings("tiny_cpu", [])))
    (tmp_path / "ds_config.json").write_text(json.dumps(DS_CONFIG))
    (tmp_path / "launches.jsonl").write_text(
        json.dumps({**LAUNCH, "world_size": 4}) + "\n" + json.dumps(LAUNCH) + '\n{"world_si'
    )
    return tmp_path


def resume(run, *words, ds_config=None, elastic=False, lengthen=False, **launch):
    settings, launch = load_settings("tiny_cpu", list(words)), {**LAUNCH, **launch}
    ds_config = ds_config or DS_CONFIG
    return plan_resumption(run, settings, ds_config, launch, elastic=elastic, lengthen=lengthen)


def test_with_equal_settings_it_resumes_and_nothing_has_changed(run):
    assert resume(run) == Resumption(checkpoint=None, changes={})
    assert resume(run).describe() == "resuming from the beginning: it has no checkpoint yet"


def test_a_line_says_where_a_run_resumes_and_what_has_changed(tmp_path):
    resumption = Resumption(tmp_path / "step_00012000", {"world_size": (1, 3), "a.b": (None, 2)})
    expected = "resuming from step 12,000; changed: a.b (None to 2), world_size (1 to 3)"
    assert resumption.describe() == expected


def test_what_changes_no_number_is_free(run):
    words = ("--checkpoint.keep_last", "3", "--loggers", "wandb")
    assert resume(run, *words).changes == {
        "checkpoint.keep_last": (None, 3),
        "loggers": (["tensorboard"], ["wandb"]),
    }


def test_buckets_and_timers_that_an_older_run_did_not_write_are_free(run):
    zero = {"stage": 1, "reduce_bucket_size": 1000}
    now = {"zero_optimization": zero, "timers": {"throughput": {"enabled": False}}}
    assert resume(run, ds_config=now).changes == {
        "ds_config.zero_optimization.reduce_bucket_size": (None, 1000),
        "ds_config.timers.throughput.enabled": (None, False),
    }


def test_the_text_of_named_shards_is_compared_by_its_content(run):
    words = ("--data.shards", "tiny", "--data.deduplicate", "none")  # as their manifest has it
    assert resume(run, *words).changes == {"data.shards": (None, "tiny")}


def test_a_run_that_is_older_than_a_setting_was_started_with_its_default(run):
    stored = json.loads((run / "run.json").read_text())
    del stored["checkpoint"]["keep_last"], stored["optimizer"]["epsilon"]
    (run / "run.json").write_text(json.dumps(stored))
    assert resume(run).changes == {}


def test_a_finished_run_without_checkpoints_does_not_begin_anew(run):
    (run / "result.json").write_text(json.dumps(RESULT))
    with pytest.raises(ConfigError, match="is finished, and its checkpoints are gone"):
        resume(run, "--steps", "40", lengthen=True)


def test_a_run_that_another_process_has_finished_meanwhile_is_left_alone(run):
    request = RunRequest(load_settings("tiny_cpu"), run, "resume")
    request.check_folder()
    (run / "result.json").write_text(json.dumps(RESULT))
    with pytest.raises(ConfigError, match="is finished already: 40 steps"):
        _resumption(request, RunRecord(run), DS_CONFIG, LAUNCH)


AUTO = ("--batch.micro_sequences", "auto")


def test_a_resumed_run_has_the_micro_batches_of_its_last_launch(run):
    """Others would be equal within rounding only; --elastic chooses them anew."""
    settings = load_settings("tiny_cpu", list(AUTO))
    (run / "run.json").write_text(as_json(settings))
    launches = [{**LAUNCH, "micro_batches": {"sequences": number}} for number in (4, 2)]
    (run / "launches.jsonl").write_text("".join(json.dumps(each) + "\n" for each in launches))
    undecided = {**DS_CONFIG, "train_micro_batch_size_per_gpu": 4}
    resumption = resume(run, *AUTO, ds_config=undecided)
    assert (resumption.micro_sequences, resumption.changes) == (2, {})
    assert resume(run, *AUTO, elastic=True).micro_sequences is None


def test_a_run_from_before_there_was_a_choice_keeps_its_micro_batches(run):
    stored = json.loads((run / "run.json").read_text())
    stored["batch"]["micro_sequences"] = None  # all that a rank has
    (run / "run.json").write_text(json.dumps(stored))
    filled = {**DS_CONFIG, "train_micro_batch_size_per_gpu": 64, "gradient_accumulation_steps": 1}
    (run / "ds_config.json").write_text(json.dumps(filled))
    resumption = resume(run, *AUTO, ds_config=filled)
    assert (resumption.micro_sequences, resumption.changes) == (64, {})


def test_other_settings_are_named(run):
    refusal = r"other settings: seed \(was 0, is 1\); give these as they were, resume it"
    with pytest.raises(ConfigError, match=refusal):
        resume(run, "--seed", "1")
    with pytest.raises(ConfigError, match=refusal):
        resume(run, "--seed", "1", elastic=True, world_size=8)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "10"), r"steps \(was 20, is 10\)"),
        (("--hours", "1"), r"hours \(was None, is 1.0\)"),
        (("--steps", "40", "--seed", "1"), r"seed \(was 0, is 1\)"),
    ],
)
def test_a_longer_run_frees_no_other_setting(run, words, message):
    with pytest.raises(ConfigError, match=f"cannot resume .*{message}"):
        resume(run, *words, lengthen=True)


def test_a_resume_needs_a_run_and_lengthening_a_resume(tmp_path):
    with pytest.raises(ConfigError, match="holds no run to resume; start it first"):
        RunRequest(load_settings("tiny_cpu"), tmp_path, "resume").check_folder()
    with pytest.raises(ConfigError, match="--lengthen belongs to --resume"):
        RunRequest(load_settings("tiny_cpu"), tmp_path, "start", True).check_folder()


@pytest.mark.parametrize(
    ("words", "changed", "named"),
    [
        ((), {"world_size": 3}, r"world_size \(was 2, is 3\)"),
        (
            (),
            {"ds_config": {"zero_optimization": {"stage": 3}}},
            r"ds_config.zero_optimization.stage \(was 1, is 3\)",
        ),
        (("--optimizer.kind", "torch"), {}, r"optimizer.kind \(was auto, is torch\)"),
        (
            ("--engine.recompute_blocks", "true", "--batch.micro_sequences", "1"),
            {},
            r"batch.micro_sequences .*, engine.recompute_blocks \(was False, is True\)",
        ),
    ],
)
def test_another_way_of_execution_needs_elastic(run, words, changed, named):
    with pytest.raises(ConfigError, match=f"{named}; with --elastic it is resumed"):
        resume(run, *words, **changed)
    assert resume(run, *words, elastic=True, **changed).changes


@pytest.mark.parametrize("elastic", [False, True])
def test_other_shards_are_refused(run, elastic):
    with pytest.raises(ConfigError, match="the shards are not those that it was started on"):
        resume(run, training_data="c", elastic=elastic)


@pytest.mark.parametrize("name", ["run.json", "ds_config.json", "launches.jsonl"])
@pytest.mark.parametrize("text", ["[]\n", '{"a\n'])
def test_a_damaged_run_folder_is_named(run, name, text):
    (run / name).write_text(text)
    with pytest.raises(ConfigError, match=f"{name} is damaged: .*; restore it from a copy"):
        resume(run)


def test_settings_are_refused_before_shards_are_built_for_them(run, monkeypatch):
    monkeypatch.chdir(run)
    with pytest.raises(ConfigError, match=r"data.sequence_length \(was 32, is 16\)"):
        main(["train", str(run), "--resume", "--data.sequence_length", "16"])
    assert not (run / "data").exists()


def test_a_dry_run_finds_the_settings_that_a_resume_refuses(run, monkeypatch):
    monkeypatch.chdir(run)
    settings = load_settings("tiny_cpu", ["--engine.recompute_blocks", "true"])
    ranks = ranks_here(2, "2xA100-SXM4-80GB")
    for beginning, message in (("resume", "with --elastic it is resumed"), ("elastic", "")):
        found = obstacles(RunRequest(settings, run, beginning), DS_CONFIG, ranks)
        assert message in found.get("folder", "") and ("folder" in found) == bool(message)
