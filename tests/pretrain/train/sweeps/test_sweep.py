"""Sweeps whose trainer is a stub."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from pretrain.__main__ import main
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import as_json
from pretrain.data.shards import held_out_fingerprint, open_data
from pretrain.train.sweeps.training import train_runs
from tests.pretrain.run_files import LAUNCH
from tests.pretrain.train.sweeps.conftest import SIZES, trained
from tests.pretrain.train.sweeps.test_spec import sweep

ARMS = ["bert_a", "bert_r", "t5", "tupe_r", "tupe_r_pld"]


def test_without_arms_those_of_the_readme_are_trained_and_compared(here, run, capsys):
    run("--name", "x", "--steps", "7")
    assert trained(here) == [(arm, f"runs/x/{arm}-seed0", "0", False) for arm in ARMS]
    assert all("--steps 7 " in call for call in here.calls(" train "))
    folders = [f"runs/x/{arm}-seed0" for arm in ARMS]
    assert here.compared == [["compare", *folders, "--report", "runs/x/report"]]
    *before, curves, again = capsys.readouterr().out.splitlines()
    started = [line for line in before if "starting" in line]
    assert started == [
        f"[{n}/5] {arm}-seed0: starting in runs/x/{arm}-seed0" for n, arm in enumerate(ARMS, 1)
    ]
    assert curves.endswith("--logdir runs/x")
    assert again.startswith(f"again: tupelo sweep {' '.join(ARMS)} --name x ")


def test_every_arm_is_trained_with_every_seed_and_first_all_with_the_first(here, run):
    run("bert_a", "tupe_r", "--name", "x", "--seeds", "7", "3")
    assert trained(here) == [
        (arm, f"runs/x/{arm}-seed{seed}", seed, False)
        for seed in "73"
        for arm in ("bert_a", "tupe_r")
    ]
    compared = [f"runs/x/{arm}-seed{seed}" for arm in ("bert_a", "tupe_r") for seed in "73"]
    assert here.compared[0][1:-2] == compared


def test_data_are_prepared_once_before_the_first_run(here):
    main(["sweep", "bert_a", "tupe_r", "--seeds", "2", "--corpus", "text.txt"])
    first, *others = [call.split()[3:] for call in here.calls()]
    assert first[:2] == ["prepare", "bert_a"]
    assert [words[0] for words in others] == ["measure"] * 2 + ["train"] * 4
    assert [Path(words[1]).name for words in others[:2]] == ["bert_a", "tupe_r"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("data.masking = 'words'", "data.masking"),
        ("model.vocabulary_size = 512", "model.vocabulary_size"),
        ("data.corpus = ['other.txt']\nevaluation.rows = 8", "data.corpus, evaluation.rows"),
    ],
)
def test_arms_that_cannot_be_compared_are_refused_before_they_are_trained(here, line, names):
    Path("mine.toml").write_text(f'extends = "bert_a"\n{line}\n')
    with pytest.raises(ConfigError, match=f"bert_a and mine differ in {names}, so their held-out"):
        main(["sweep", "bert_a", "mine.toml", "--name", "x"])
    assert here.calls() == [] and not Path("runs").exists()


def test_arms_over_the_same_shards_may_differ_in_the_size_of_the_vocabulary(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "bert_a"\nmodel.vocabulary_size = 9000\n')
    with pytest.raises(ConfigError, match="differ in model.vocabulary_size"):
        sweep("bert_a", file)
    assert len(sweep("bert_a", file, "--data.shards", tmp_path).arms) == 2


def test_a_dry_run_needs_no_text_and_checks_every_arm(here, tmp_path, monkeypatch):
    """Sizes and costs do not depend on it; what a start lacks is said of each arm."""
    (tmp_path / "mine.toml").write_text("[data]\ncorpus = []\n")
    (tmp_path / "other.toml").write_text("[data]\ncorpus = []\n[model]\nnorm = 'post'\n")
    words = (str(tmp_path / "mine.toml"), str(tmp_path / "other.toml"), "--name", "x")
    main(["sweep", *words, "--dry-run"])
    assert [Path(folder).name for _, folder, *_ in trained(here)] == ["mine-seed0", "other-seed0"]
    assert all(call.endswith(" --dry-run") for call in here.calls()) and not here.compared
    here.log.unlink()
    monkeypatch.setenv("STUB_FAILS", "* train *mine.toml *")
    with pytest.raises(SystemExit) as end:
        main(["sweep", *words[:2], "--name", "z", "--dry-run"])
    assert end.value.code == 3 and len(trained(here)) == 2
    here.log.unlink()
    with pytest.raises(ConfigError, match="this recipe names no text"):
        main(["sweep", *words[:2], "--name", "y"])
    assert here.calls() == []


def test_a_run_that_diverges_is_a_result_and_not_trained_again(here, run, monkeypatch, capsys):
    """The others go on; an arm that lost a seed at once is left out, and a note says so."""
    monkeypatch.setenv("STUB_DIVERGES", "* train *bert_r-seed1*")
    words = ("bert_a", "bert_r", "--name", "x", "--seeds", "2", "--steps", "7")
    run(*words)
    assert "bert_r-seed1: diverged, and the others go on" in capsys.readouterr().out
    note = "runs/x/bert_r-seed1 diverged before any evaluation: the arm is left out"
    folders = ["runs/x/bert_a-seed0", "runs/x/bert_a-seed1"]
    compared = ["compare", *folders, "--report", "runs/x/report", "--note", note]
    assert here.compared == [compared]
    here.log.unlink()
    line = {"step": 0, "tokens": 0, "training_seconds": 0, "flops": 0, "loss": 9}
    Path("runs/x/bert_r-seed1/evals.jsonl").write_text(f"{json.dumps(line)}\n")
    run(*words)
    assert not here.calls(" train ") and here.compared[1] == compared


def test_a_run_of_other_settings_is_not_taken_for_one_of_the_sweep(tmp_path):
    """As after a recipe was changed: trials would choose, and arms be compared, by other runs."""
    ((run,),) = sweep("bert_a", "--steps", "7", "--corpus", "a.txt").runs(tmp_path)
    settings = json.loads(as_json(run.arm.settings))
    changes = {"loggers": [], "engine": {**settings["engine"], "attention": "eager"}}
    run.folder.mkdir()
    for change, refused in ((changes, None), ({"steps": 9}, "steps"), ({"seed": 4}, "seed")):
        (run.folder / "run.json").write_text(json.dumps({**settings, **change}))
        if refused is None:
            run.refuse_other_settings()
            continue
        with pytest.raises(ConfigError, match=f"bert_a-seed0 with other settings: {refused} .was"):
            run.refuse_other_settings()


def test_a_recipe_that_changes_under_a_sweep_starts_no_more_runs(tmp_path, capsys):
    recipe = tmp_path / "mine.toml"
    recipe.write_text("steps = 7\n")
    (runs,) = sweep(str(recipe), "--corpus", "a.txt").runs(tmp_path)
    recipe.write_text("steps = 9\n")
    with pytest.raises(SystemExit):
        train_runs(runs, [None])
    assert "not started: " in (printed := capsys.readouterr().out)
    assert "mine.toml has changed since the sweep began" in printed


def test_runs_of_other_shards_are_refused_before_more_are_trained(here, run, shards):
    words = ("bert_a", "--name", "x", "--steps", "7", "--seeds")
    run(*words, "1")
    settings = load_settings("bert_a", ("--data.shards", str(shards), *SIZES))
    launch = {**LAUNCH, "held_out": held_out_fingerprint(open_data(settings), settings)}
    Path("runs/x/bert_a-seed0/launches.jsonl").write_text(json.dumps(launch) + "\n")
    run(*words, "2")
    Path("runs/x/bert_a-seed0/launches.jsonl").write_text(json.dumps(LAUNCH) + "\n")
    with pytest.raises(ConfigError, match="runs/x has runs with other held-out sequences than"):
        run(*words, "3")
    assert len(trained(here)) == 2


def test_a_run_that_fails_fails_alone_and_is_begun_again_on_resume(here, run, capsys, monkeypatch):
    monkeypatch.setenv("STUB_FAILS", "* train tupe_r *")
    with pytest.raises(SystemExit) as end:
        run("--name", "x", "--steps", "7")
    assert end.value.code == 3
    output, errors = capsys.readouterr()
    assert "[4/5] tupe_r-seed0: failed with status 3\n" in output
    failed, stopped = errors.splitlines()
    assert failed == "1 run failed; the others have ended"
    assert stopped.startswith(f"Stopped. Continue with: tupelo sweep {' '.join(ARMS)} --name x ")
    assert [arm for arm, *_ in trained(here)] == ARMS and not here.compared
    monkeypatch.delenv("STUB_FAILS")
    monkeypatch.setenv("STUB_NO_RESULT", "1")  # as of a launcher whose ranks were killed
    with pytest.raises(SystemExit) as end:
        run("--name", "x", "--steps", "7")
    assert end.value.code == 1
    assert "[4/5] tupe_r-seed0: ended without a result" in capsys.readouterr().out
    monkeypatch.delenv("STUB_NO_RESULT")
    here.log.unlink()
    run("--name", "x", "--steps", "7")
    assert trained(here) == [("tupe_r", "runs/x/tupe_r-seed0", "0", True)]
    assert "--steps 7 " in here.calls(" train ")[0]
    output = capsys.readouterr().out
    (here.folder / "runs/x/bert_r-seed0/run.json").write_text('{"steps": 9}')
    with pytest.raises(ConfigError, match="bert_r-seed0 with other .*steps .was 9, is 7"):
        run("--name", "x", "--steps", "7")
    assert "[2/5] bert_r-seed0: finished before" in output
    assert "[4/5] tupe_r-seed0: resuming in runs/x/tupe_r-seed0" in output


def test_an_arm_that_cannot_be_measured_is_refused_before_any_is_trained(here, run, monkeypatch):
    monkeypatch.setenv("STUB_FAILS", "*measure bert_r *")
    with pytest.raises(ConfigError, match="bert_r cannot be trained: it wrote nothing$"):
        run("bert_a", "bert_r", "--name", "x")
    assert not trained(here)


def test_a_sweep_says_what_it_will_do(here, run, capsys):
    (here.folder / "mine.toml").write_text('extends = "bert_a"\nsteps = 9\n')
    run("bert_a", "mine.toml", "--name", "x", "--seeds", "3", "--hours", "2")
    output = capsys.readouterr().out
    assert re.search(r"\nbert_a +bert_a +2 h\n", output)
    assert re.search(r"\nmine +mine.toml +2 h\n", output)
    assert "\nruns: 6, 0 finished, 1 at a time, in runs/x\n" in output
    assert "stop with Ctrl-C, continue with: tupelo sweep bert_a mine.toml --seeds 3 " in output
    assert "\nsteps take about 12 h 00 min, starts and evaluations apart; a run: bert" in output
    assert all("--hours 2 " in call for call in here.calls(" train "))
    with pytest.raises(ConfigError, match="max_words"):  # of shards for other recipes
        run("smoke", "--name", "y")
    assert "continue with: tupelo sweep smoke --name y" in capsys.readouterr().out


def test_a_signal_while_the_speed_is_measured_stops_the_sweep(stubs, shards):
    words = ("--name", "x", "--data.shards", shards, *SIZES)
    process = stubs.start_waiting("sweep", *words, STUB_WAITS="measure")
    os.killpg(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert errors.startswith("Stopped. Continue with: tupelo sweep ") and "--name x" in errors
    assert stubs.calls("heard") == ["heard TERM"] and not trained(stubs)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--resume --name x", "there is no --resume"),
        ("--name single", "is a run, not a sweep; .*tupelo train runs/single"),
        ("--name a/b", "'a/b'"),
        ("bert_a bert_a", "two arms are called bert_a"),
        ("bert_a brt_b", "no recipe 'brt_b'; did you mean bert_r"),
        ("--steps many", "steps"),
        ("--seeds 0", "seeds 0: give how many"),
        ("--seeds 12345678901234567890", "seeds 12345678901234567890: give how"),
        ("--seeds 1 1", "seeds .1, 1.: .*each once"),
        ("--seeds -1 2", "seeds .-1, 2.: give"),
        ("--seeds 1 2 --seed 3", "--seed 3 and a list of seeds: give one"),
        ("--seeds 1,2", "invalid int value: .1,2."),
        ("--seeds -1", "seeds -1: give"),
        ("bert_a absent.toml", "there is no file or run folder 'absent.toml'"),
        ("--gpus 2", "--gpus 2: there are 0"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_started(here, words, parts):
    Path("runs/single").mkdir(parents=True)
    Path("runs/single/run.json").touch()
    with pytest.raises(ConfigError, match=parts):
        main(["sweep", *words.split()])
    assert here.calls() == [] and len(list(Path("runs").iterdir())) == 1
