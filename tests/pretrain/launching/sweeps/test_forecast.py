"""How long a sweep takes: compared with sums by hand and with a simulation."""

import json
from pathlib import Path

import pytest

from pretrain.config.recipe import load_settings
from pretrain.launching.launch_plan import LaunchPlan
from pretrain.launching.sweeps.announcement import describe_time
from pretrain.launching.sweeps.arms import Arm, SweepRun
from pretrain.launching.sweeps.forecast import Forecast, forecast_of, roughly


def made_run(folder, name="a", *, step=None, **settings):
    """Return a run of `tiny_cpu`, trained up to a step."""
    words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    words += ["--evaluation.every_steps", "10", "--evaluation.rows", "24"]
    run = SweepRun(Arm(name, name, load_settings("tiny_cpu", words)), folder / name, ())
    run.folder.mkdir(exist_ok=True)
    if step is not None:
        (run.folder / f"checkpoints/step_{step:08d}").mkdir(parents=True)
        rows = [{"step": n, "training_seconds": 3.0 * n} for n in (step, step + 5)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (run.folder / "metrics.jsonl").write_text(text + '{"step": 99')  # cut by a kill
    return run


def test_a_run_takes_its_start_its_steps_and_its_evaluations(tmp_path):
    """24 rows forward are 3 batches of 8, each a third of a step."""
    run = made_run(tmp_path, steps=40)
    assert Forecast({"a": 2.0}, 5.0).of(run) == pytest.approx(5 + 40 * 2 + 4 * 3 * 2 / 3)


def test_a_begun_run_continues_from_its_checkpoint(tmp_path):
    run = made_run(tmp_path, steps=40, step=20)
    assert Forecast({"a": 2.0}, 5.0).of(run) == pytest.approx(5 + 20 * 2 + 2 * 3 * 2 / 3)


def test_of_given_hours_what_is_left_counts(tmp_path):
    """30 seconds of training are in 10 of its steps; the 60 that are left are 30 steps."""
    run = made_run(tmp_path, hours=90 / 3600, step=10)
    assert Forecast({"a": 2.0}, 5.0).of(run) == pytest.approx(5 + 60 + 3 * 3 * 2 / 3)


def test_nothing_is_said_of_an_arm_that_was_not_measured(tmp_path):
    runs = [made_run(tmp_path), made_run(tmp_path, "b")]
    forecast = Forecast({"a": 2.0})
    assert forecast.of(runs[1]) is None
    assert forecast.left(runs, [], 1) is None
    assert describe_time(forecast, runs, at_once=1, width=80) == ""


def test_a_slower_machine_than_was_measured_corrects_what_is_left(tmp_path):
    forecast = Forecast({"a": 2.0}, 0.0)
    run = made_run(tmp_path, steps=30)
    before = forecast.of(run)
    forecast.add_finished(100.0, 150.0)
    assert forecast.of(run) == pytest.approx(1.5 * before)
    forecast.add_finished(150.0, 150.0)  # as corrected: 100 of the measurement
    assert forecast.of(run) == pytest.approx(1.5 * before)


@pytest.mark.parametrize(("at_once", "running"), [(1, []), (2, [7.0]), (3, [4.0, 30.0]), (4, [])])
def test_the_whole_ends_when_a_simulation_of_it_ends(tmp_path, at_once, running):
    steps = [10, 40, 20, 80, 30]
    runs = [made_run(tmp_path, f"arm{n}", steps=count) for n, count in enumerate(steps)]
    forecast = Forecast({run.arm.name: 1.0 for run in runs}, 2.0)
    waiting = [round(forecast.of(run)) for run in runs]
    assert waiting == [forecast.of(run) for run in runs]  # whole seconds
    now, training, queue = 0, [round(seconds) for seconds in running], list(waiting)
    while training or queue:
        while queue and len(training) < at_once:
            training.append(queue.pop(0))
        now += 1
        training = [seconds - 1 for seconds in training if seconds > 1]
    assert forecast.left(runs, running, at_once) == now


def test_finished_runs_need_no_measurement(tmp_path):
    """The arm has two seeds: 3 and 5 seconds a step."""
    results = [{"step": 10, "training_seconds": seconds} for seconds in (30, 50)]
    arm = Arm("a", "a", load_settings("tiny_cpu"))
    runs = [SweepRun(arm, tmp_path / f"a-seed{seed}", ()) for seed in range(3)]
    for run, result in zip(runs, results, strict=False):
        run.folder.mkdir()
        (run.folder / "result.json").write_text(json.dumps(result))
    assert forecast_of(runs, LaunchPlan()).seconds_per_step == {"a": 4.0}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(7.31, "7.3 s"), (89, "89 s"), (100, "1.7 min"), (7200, "2 h"), (64_800, "18 h")],
)
def test_a_duration_is_as_exact_as_it_is_known(seconds, words):
    assert roughly(seconds) == words


def test_without_room_for_a_measurement_nothing_is_forecast(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    assert forecast_of([made_run(tmp_path)], LaunchPlan()).seconds_per_step == {}
    assert "note: the speed of a could not be measured: [Errno 2]" in capsys.readouterr().out


def test_arms_are_measured_with_their_own_settings(stubs, monkeypatch):
    """Each in a process, which is given its settings as those of a run."""
    monkeypatch.setattr("sys.executable", str(stubs.bin / "python"))
    monkeypatch.setenv("CALLS", str(stubs.log))
    monkeypatch.setenv("PATH", str(stubs.bin), prepend=":")
    keep = '[[ ! -e $word/run.json ]] || cp "$word"/run.json "$CALLS.${word##*/}"'
    keeps = f"for word in $call; do {keep}; done\n"
    stubs.program("python", (stubs.bin / "python").read_text() + keeps)
    monkeypatch.setenv("STUB_SPEEDS", "/wide=0.5 /low=0.25")
    arms = [
        Arm("wide", "mine/wide.toml", load_settings("tiny_cpu", ["--model.width", "64"])),
        Arm(
            "low", "tiny_cpu", load_settings("tiny_cpu", ["--learning_rate.peak", "0.000123456789"])
        ),
    ]
    runs = [SweepRun(arm, Path("absent"), ()) for arm in arms]
    assert forecast_of(runs, LaunchPlan()).seconds_per_step == {"wide": 0.5, "low": 0.25}
    assert len(stubs.calls()) == 2
    for arm in arms:
        (stubs.log.parent / arm.name).mkdir()
        Path(f"{stubs.log}.{arm.name}").rename(stubs.log.parent / arm.name / "run.json")
        assert load_settings(stubs.log.parent / arm.name) == arm.settings
