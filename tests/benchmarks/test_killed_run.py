"""The run that a session kills: what is compared with what, and what it leaves behind."""

import json
import sys

import pytest

from tests.benchmarks.test_gpu_session import MACHINE, is_gone, outcome, wait_for


def test_a_resumed_run_with_other_losses_fails(programs, tmp_path):
    from findings import of_killed_run

    def findings(difference, bound, lines=4):
        resumed = {"largest_difference": difference, "bound": bound, "lines": lines}
        numbers = {"results": {"steps": 60, "resumed": {**resumed, "from_step": 30}}}
        (tmp_path / "killed_run.numbers.json").write_text(json.dumps(numbers))
        [found] = of_killed_run(tmp_path, MACHINE)
        return found.verdict

    assert findings(0.0, 0.0) == findings(1e-3, 2e-3) == "passed"
    assert findings(1e-9, 0.0) == findings(3e-3, 2e-3) == findings(0.0, 0.0, lines=0) == "failed"


KILLED_TRAINING = """
import json, sys, time
from pathlib import Path
run, is_resumed = Path({run!r}), {is_resumed}
(run / "checkpoints" / "step_00000030").mkdir(parents=True, exist_ok=True)
launch = {{"resumed_from": 30, "versions": {{}}}}
with (run / "launches.jsonl").open("a") as launches:
    launches.write(json.dumps(launch) + chr(10))
if is_resumed:
    time.sleep(1)  # the lines of the killed run are still there
file = run / "metrics.jsonl"
old = file.read_text().splitlines() if is_resumed else []
lines = [line for line in old if json.loads(line)["step"] <= 30]
first, end, loss = (32, 61, 2.0) if is_resumed else (2, 41, 1.0)
lines += [json.dumps({{"step": step, "loss": loss}}) for step in range(first, end, 2)]
file.write_text(chr(10).join([*lines, ""]))
time.sleep(0 if is_resumed else 60)
"""


def test_a_killed_run_is_compared_with_the_resumed_one_and_not_with_itself(
    programs, tmp_path, monkeypatch
):
    import child
    from killed_run import KilledRun

    run = KilledRun(tmp_path, tmp_path / "numbers.json", is_small=True)

    def start(word, *words):
        training = KILLED_TRAINING.format(run=str(run.folder), is_resumed="--resume" in words)
        code = "pass" if word == "prepare" else training
        return child.start([sys.executable, "-c", code], run.log)

    monkeypatch.setattr(run, "start", start)
    monkeypatch.setattr(run, "totals", dict)
    run.train(60)
    resumed = outcome(tmp_path, "numbers")["results"]["resumed"]
    assert resumed["largest_difference"] == 1 and resumed["lines"] == 5


def test_a_loss_that_is_no_number_is_no_equal_one(programs, tmp_path):
    from killed_run import KilledRun

    run = KilledRun(tmp_path, tmp_path / "numbers.json", is_small=True)
    run.folder.mkdir()
    before = [{"step": step, "loss": 1.0} for step in (32, 34)]
    launch = {"resumed_from": 30, "versions": {}}
    (run.folder / "launches.jsonl").write_text(json.dumps(launch) + "\n")
    again = [{"step": 32, "loss": 1.0}, {"step": 34, "loss": float("nan")}]
    text = "".join(json.dumps(line) + "\n" for line in again)
    (run.folder / "metrics.jsonl").write_text(text)
    assert run.compare(before)["largest_difference"] == float("inf")


def test_the_steps_of_a_killed_run_are_those_of_its_own_batch(programs, tmp_path):
    from killed_run import FEWEST_STEPS, TIMED_VARIANT, TRAINING_SECONDS, USUAL_STEPS, steps_of

    file = tmp_path / "precisions.numbers.json"

    def steps(sequences, seconds):
        variants = {TIMED_VARIANT: {"seconds": seconds}}
        shape = {"shape": [12, 768, 512, sequences], "variants": variants}
        file.write_text(json.dumps({"results": [shape]}))
        return steps_of(file)

    assert steps_of(file) == USUAL_STEPS
    assert steps(64, 0.2) == TRAINING_SECONDS / 0.2
    assert steps(16, 0.05) == TRAINING_SECONDS / 0.2 and steps(16, 1.0) == FEWEST_STEPS


def test_an_interrupted_killed_run_ends_all_that_its_training_started(programs, tmp_path):
    import child
    from killed_run import KilledRun

    run = KilledRun(tmp_path, tmp_path / "numbers.json", is_small=True)
    noting = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(worker.pid))"
    started = f"import subprocess; worker = subprocess.Popen(['sleep', '60']); {noting}"
    training = child.start(
        [sys.executable, "-c", f"{started}; worker.wait()"], tmp_path / "training.txt"
    )
    pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.wait(training, interrupted)
    wait_for(lambda: is_gone(pid))
