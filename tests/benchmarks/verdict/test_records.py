"""Sweeps, recipes and records of the verdict against each other and against the runs."""

import math
import runpy
from dataclasses import replace

import pytest

from pretrain.checkpoint.changes import flat_settings
from pretrain.compare.run_files import DECISIONS
from pretrain.compare.runs import Run
from pretrain.config.recipe import load_settings
from pretrain.launching.sweeps.spec import read_spec
from tests.benchmarks.verdict.conftest import ROOT, run_of, study_of

SWEEPS = sorted((ROOT / "benchmarks" / "verdict" / "sweeps").rglob("*.toml"))


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_every_sweep_of_the_verdict_names_arms_that_exist(file):
    spec = read_spec(file)
    for arm in spec.arms:
        tried = spec.tuning.points[0] if spec.tuning else {}
        words = {**spec.settings, **tried, **arm.words}
        options = [word for name, value in words.items() for word in (f"--{name}", value)]
        settings = load_settings(arm.recipe, options)
        assert settings.data.sequence_length == 64 and settings.steps <= 12_000
        assert spec.tuning is None or len(spec.tuning.points) in (2, 6, 8)


@pytest.mark.parametrize(
    ("recipe", "record", "arm"),
    [
        ("tupe_r_tuned", "post_norm_seeds", "tupe_r_post"),
        ("tupe_r_drop", "depth/layer_drop_width", "paper_10"),
    ],
)
def test_a_recipe_of_the_verdict_trains_what_its_runs_trained(recipe, record, arm):
    from studies import read_study

    study = read_study(ROOT / "results" / f"{record}.json")
    offered = flat_settings(load_settings(recipe))
    runs = study.of_arm(arm).values()
    assert len(runs) > 2
    for run in runs:
        trained = {**study.shared, **run.settings}
        differing = {name for name, value in trained.items() if offered[name] != value}
        assert differing == {"evaluation.rows"}


def test_a_record_is_read_as_it_was_written(tmp_path):
    from studies import read_study, write_study

    study = study_of(run_of("a", 1, [6.0, 5.0], rate=1), run_of("a", 4, [6.5], is_trial=True))
    write_study(study, tmp_path / "toy.json")
    assert read_study(tmp_path / "toy.json") == study
    assert len((tmp_path / "toy.json").read_text().splitlines()) < 40


def test_studies_of_the_same_words_are_joined():
    from studies import join

    first = study_of(run_of("a", 1, [5.0]))
    second = replace(study_of(run_of("b", 1, [4.0], norm="post")), name="more")
    second = replace(second, precision=("bfloat16",))
    second = replace(second, shared={**second.shared, "batch.global_sequences": 20})
    joined = join([first, second])
    assert joined.name == "toy+more" and joined.arms == ["a", "b"]
    assert joined.shared == {"data.sequence_length": 100}
    assert joined.device == ("cpu",) and joined.precision == ("float32", "bfloat16")
    assert [run.settings for run in joined.runs] == [
        {"batch.global_sequences": 10},
        {"batch.global_sequences": 20, "norm": "post"},
    ]
    with pytest.raises(SystemExit, match=r"toy\+more were evaluated on different words"):
        join([first, replace(second, held_out="others")])
    with pytest.raises(SystemExit, match="two runs of a with seed 1"):
        join([first, first])
    with pytest.raises(SystemExit, match="runs of a in .* have different settings"):
        join([study_of(run_of("a", 1, [5.0], norm="pre")), study_of(run_of("a", 2, [5.0], norm=0))])
    with pytest.raises(SystemExit, match="batches of different size"):
        assert joined.tokens_per_step


def test_a_run_that_an_anomaly_stopped_is_collected_and_ends_at_infinity(tmp_path):
    from studies import condense

    main = runpy.run_path(str(ROOT / "benchmarks" / "verdict" / "__main__.py"))
    for name, file, text in (
        ("a-seed1", "result.json", "{}"),
        ("a-seed2", DECISIONS, '{"action": "stop"}\n'),
        ("a-seed3", "evals.jsonl", ""),  # it has not finished
    ):
        folder = tmp_path / name
        (folder / file).parent.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        (folder / file).write_text(text)
    ended = main["ended_runs"](tmp_path)
    assert [folder.name for folder in ended] == ["a-seed1", "a-seed2"]

    launch = {"held_out": "words", "source": "text", "device": "cpu", "precision": "float32"}
    launch |= {"versions": {}, "frequency_entropy": 7.0, "commit": "abc"}
    evaluation = {"step": 100, "loss": 5.0, "flops": 1.0, "training_seconds": 1.0}
    run = Run(tmp_path, {"name": "a", "seed": 2}, [launch], [], [evaluation], None, True)
    (stopped,) = condense("toy", [run]).runs
    assert stopped.loss == math.inf and stopped.steps == 100


def test_scores_of_tasks_are_those_that_the_table_of_fine_tuning_counts(tmp_path):
    main = runpy.run_path(str(ROOT / "benchmarks" / "verdict" / "__main__.py"))
    file = tmp_path / "table.csv"
    file.write_text(
        "run,column,metric,score\nours-seed1,CoLA,matthews_correlation,20.5\n"
        "ours-seed1,STS-B,mean,61.0\nours-seed1,STS-B Pearson,pearson,60.0\n"
        "ours-seed1,STS-B Spearman,spearman,62.0\ntheirs-seed1,CoLA,matthews_correlation,3.5\n"
    )
    assert main["scores_of_tasks"](str(file)) == {
        "ours-seed1": {"CoLA": 20.5, "STS-B": 61.0},
        "theirs-seed1": {"CoLA": 3.5},
    }
    assert main["scores_of_tasks"](f"slow={file}")["theirs-seed1"] == {"CoLA, slow": 3.5}
    with pytest.raises(SystemExit, match="there is no such file"):
        main["scores_of_tasks"](str(tmp_path / "nothing.csv"))
