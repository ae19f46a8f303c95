"""The session on a GPU: what it does with its parts, shown with tiny ones, and a dry run of all."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forked_command import inherited_environment

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "benchmarks/gpu_session"
MACHINE = {
    "dry_run": False,
    "device": "NVIDIA Test",
    "gpus": 1,
    "memory_gib": 80,
    "commit": "abc",
    "code": "0123",
    "versions": {"torch": "2.11.0"},
    "has_transformers": True,
    "has_pytest": True,
}
NOTES = "open(r'{folder}/calls', 'a').write('%s ')"
WRITES = "open(r'{numbers}', 'w').write('3')"


@pytest.fixture
def part(programs):
    from findings import Finding
    from parts import Part

    def read(name):
        def findings(folder, machine):
            number = int((folder / f"{name}.numbers.json").read_text())
            return [Finding(f"number of {name}", str(number), "passed", "none")]

        return findings

    def make(name, code=WRITES, *, seconds=30, obstacle=None):
        words = ("-c", f"{NOTES % name}; {code}")
        return Part(name, f"title of {name}", seconds, words, words, read(name), lambda _: obstacle)

    return make


@pytest.fixture
def run(programs, tmp_path):
    from session import Session

    def run(*parts, machine=MACHINE, budget=None, only=None):
        return Session(tmp_path, machine, budget=budget, limit=None).run(parts, only)

    return run


def calls(folder):
    return (folder / "calls").read_text().split()


def outcome(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def test_what_passed_is_not_run_again_with_the_same_code_on_the_same_machine(part, run, tmp_path):
    assert run(part("one"), part("two")) == 0
    assert run(part("one"), part("two")) == 0
    assert calls(tmp_path) == ["one", "two"]
    assert run(part("one"), part("two"), machine={**MACHINE, "code": "4567"}) == 0
    assert run(part("one"), part("two"), machine={**MACHINE, "device": "NVIDIA Other"}) == 0
    assert calls(tmp_path) == ["one", "two"] * 3


def test_a_part_that_fails_does_not_stop_the_others_and_comes_last_in_the_next_call(
    part, run, tmp_path, capsys
):
    fails = part("fails", "raise SystemExit('error: no such kernel')")
    parts = (fails, part("silent", "pass"), part("good"))
    assert run(*parts) == 1
    assert calls(tmp_path) == ["fails", "silent", "good"]
    assert outcome(tmp_path, "fails")["reason"] == "status 1: error: no such kernel"
    assert outcome(tmp_path, "silent")["reason"] == "it has written no silent.numbers.json"
    assert outcome(tmp_path, "good")["status"] == "passed"
    assert "failed: fails, silent\n" in capsys.readouterr().out
    assert run(*parts, part("new")) == 1
    assert calls(tmp_path)[3:] == ["new", "fails", "silent"]


def test_a_part_over_its_limit_is_ended_with_all_it_started_and_keeps_its_numbers(
    part, run, tmp_path
):
    started = "import subprocess, time; child = subprocess.Popen(['sleep', '60'])"
    noting = "open(r'{folder}/pid', 'w').write(str(child.pid))"
    slow = part("slow", f"{WRITES}; {started}; {noting}; time.sleep(60)", seconds=6)
    assert run(slow) == 1
    found = outcome(tmp_path, "slow")
    assert found["status"] == "failed" and "over its limit of 6 s" in found["reason"]
    assert found["findings"][0]["result"] == "3"
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_ranks_in_sessions_of_their_own_end_with_their_program(programs, tmp_path):
    import child

    started = "import subprocess; rank = subprocess.Popen(['sleep', '60'], start_new_session=True)"
    noting = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(rank.pid))"
    for grace in (0, 20):  # it ends at the interrupt, and leaves the rank
        program = child.start(
            [sys.executable, "-c", f"{started}; {noting}; rank.wait()"], tmp_path / "log.txt"
        )
        pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        child.end(program, grace=grace)
        wait_for(lambda pid=pid: is_gone(pid))
        (tmp_path / "pid").unlink()


def test_what_an_earlier_session_left_is_no_result_nor_is_a_file_that_was_cut(part, run, tmp_path):
    from dataclasses import replace

    from findings import of_profile, of_tests

    (tmp_path / "profile").mkdir()
    numbers = {"metrics": {"time_shares": {}}, "operators": []}
    (tmp_path / "profile" / "profile.json").write_text(json.dumps(numbers))
    profiles = replace(part("profile", "pass"), findings=of_profile)
    tests = replace(
        part("tests", "open(r'{folder}/tests.xml', 'w').write('<testsuites><testsu')"),
        findings=lambda folder, _: of_tests(folder, "tests"),
    )
    assert run(profiles, tests, part("good")) == 1
    assert outcome(tmp_path, "profile")["reason"] == "it has written no profile.json"
    assert outcome(tmp_path, "tests")["reason"].startswith("its numbers cannot be read: ParseError")
    assert outcome(tmp_path, "good")["status"] == "passed"


def test_parts_that_no_longer_fit_are_named_and_the_next_call_begins_with_them(
    part, run, tmp_path, capsys
):
    parts = (part("short", seconds=5), part("long", seconds=500), part("also", seconds=5))
    assert run(*parts, budget=60) == 3
    assert calls(tmp_path) == ["short", "also"]
    printed = capsys.readouterr().out
    assert "left out: long: may take 500 s, " in printed and "call it again" in printed
    assert "were left; give --minutes 9" in " ".join(printed.split())
    assert "| long | title of long |" in (tmp_path / "summary.md").read_text()
    assert run(*parts, budget=600) == 0
    assert calls(tmp_path) == ["short", "also", "long"]


def test_what_cannot_run_here_is_skipped_by_name(part, run, tmp_path, capsys):
    assert run(part("two_gpus", obstacle="it needs two GPUs"), part("one")) == 0
    assert calls(tmp_path) == ["one"]
    assert "skipped: two_gpus: it needs two GPUs" in capsys.readouterr().out


def test_single_parts_can_be_chosen_and_the_table_keeps_the_others(part, run, tmp_path):
    assert run(part("one"), part("two"), only=["one"]) == 0
    assert run(part("one"), part("two"), only=["two"]) == 0
    assert calls(tmp_path) == ["one", "two"]
    assert (tmp_path / "summary.md").read_text().count("passed |") == 2


def test_the_table_can_be_pasted(part, run, tmp_path):
    run(part("one"), part("bad", "raise SystemExit('a | b')"), part("no", obstacle="no GPU"))
    heading, empty, *table = (tmp_path / "summary.md").read_text().splitlines()
    assert "NVIDIA Test, 80 GiB; commit abc (code 0123); torch 2.11.0." in heading and not empty
    assert table == [
        "| part | what was measured | result | limit |  |",
        "| --- | --- | --- | --- | --- |",
        "| one | number of one | 3 | none | passed |",
        "| bad | title of bad | status 1: a \\| b |  | failed |",
        "| no | title of no | no GPU |  | skipped |",
    ]


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {programs!r})
from findings import Finding
from parts import Part
from session import Session
folder = Path({folder!r})
def read(folder, machine):
    return [Finding("it", "ran", "passed")]
note = "open(r'{{folder}}/calls', 'a').write('%s ')"
pid = "import os, time; open(r'{{folder}}/pid', 'w').write(str(os.getpid())); time.sleep({sleep})"
quick = Part("quick", "", 60, ("-c", note % "quick"), (), read)
slow = Part("slow", "", 60, ("-c", note % "slow" + ";" + pid), (), read)
sys.exit(Session(folder, {machine!r}, budget=None, limit=None).run([quick, slow]))
"""


def killed_session(folder, sleep):
    program = KILLED.format(
        programs=str(PROGRAMS), folder=str(folder), sleep=sleep, machine=MACHINE
    )
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_session_that_is_killed_leaves_no_program_and_continues_after_what_passed(
    tmp_path, number
):
    session = killed_session(tmp_path, sleep=60)
    wait_for((tmp_path / "pid").exists)
    pid = int(wait_for((tmp_path / "pid").read_text))
    session.send_signal(number)
    session.wait(30)
    wait_for(lambda: is_gone(pid))
    assert not (tmp_path / "slow.json").exists()
    assert "| slow |  |  |  | not run yet |" in (tmp_path / "summary.md").read_text()
    assert killed_session(tmp_path, sleep=0).wait(30) == 0
    assert calls(tmp_path) == ["quick", "slow", "slow"]


def is_gone(pid):
    file = Path(f"/proc/{pid}/stat")
    return not file.exists() or file.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def session_command(*words, cwd=None, **variables):
    return subprocess.run(
        [str(ROOT / "benchmarks/gpu_session.sh"), *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**inherited_environment(), "PYTHON": sys.executable, **variables},
    )


def test_a_session_needs_a_gpu(tmp_path):
    finished = session_command(tmp_path / "results", CUDA_VISIBLE_DEVICES="")
    assert finished.returncode == 1 and finished.stderr.count("\n") == 1
    assert finished.stderr.startswith("error: torch ") and "--dry-run" in finished.stderr
    assert not (tmp_path / "results").exists()


def test_a_dry_run_hides_the_gpu_and_results_belong_to_the_folder_of_the_caller(tmp_path):
    words = ("--dry-run", "results", "--only", "gpu_tests")
    finished = session_command(*words, cwd=tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert finished.returncode == 0, finished.stderr
    found = outcome(tmp_path / "results", "gpu_tests")
    assert found["reason"] == "it needs an NVIDIA GPU" and found["machine"]["gpus"] == 0


def test_no_part_of_a_dry_run_sees_a_gpu(programs, monkeypatch, tmp_path):
    session = runpy.run_path(str(PROGRAMS / "__main__.py"))["main"]
    seen = []

    def probe(*, dry_run):
        seen.append((dry_run, os.environ["CUDA_VISIBLE_DEVICES"]))
        raise SystemExit(0)

    monkeypatch.setitem(session.__globals__, "probe", probe)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    for words in ([], ["--dry-run"]):
        monkeypatch.setattr(sys, "argv", ["gpu_session", str(tmp_path), *words])
        with pytest.raises(SystemExit):
            session()
    assert seen == [(False, "0"), (True, "")]


def test_a_python_without_the_packages_is_named(programs, monkeypatch):
    import machine

    monkeypatch.setitem(sys.modules, "pretrain.train.recording.provenance", None)
    with pytest.raises(SystemExit, match=f"error: {sys.executable} has no .*PYTHON"):
        machine.main(dry_run=True)


def test_a_failing_test_is_named(programs, tmp_path):
    from findings import of_tests

    (tmp_path / "kernels.xml").write_text(
        '<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1">'
        '<testcase name="a"/><testcase name="b"><skipped/></testcase>'
        '<testcase name="c"><failure message="1 != 2&#10;more"/></testcase>'
        "</testsuite></testsuites>"
    )
    counted, named = of_tests(tmp_path, "kernels")
    assert counted.result == "1 passed, 1 failed, 1 skipped" and counted.verdict == "failed"
    assert (named.measured, named.result, named.verdict) == ("c", "1 != 2", "failed")


def test_positions_are_held_to_the_goal_where_there_is_a_baseline(programs, tmp_path):
    from findings import of_position_cost

    gpu = {
        "clock_mhz": 1500,
        "largest_clock_mhz": 1980,
        "power_watts": 690,
        "power_limit_watts": 700,
    }
    costs = {"bert-a": 0.0, "tupe-a": 0.02, "tupe-r": 0.04, "tupe-a, folded": 0.2}

    def found(costs, **more):
        positions = {name: {"cost": cost, "attention": "triton"} for name, cost in costs.items()}
        shape = {"shape": [12, 768, 512, 64], "positions": positions, **more}
        (tmp_path / "position_cost.numbers.json").write_text(json.dumps({"results": [shape]}))
        return of_position_cost(tmp_path, MACHINE)

    rows = found(costs, gpu=gpu)
    assert [row.verdict for row in rows] == ["passed", "missed", "measured"]
    assert rows[2].limit == "" and rows[2].result.startswith("+20.0% (triton); 1500 of 1980 MHz")
    [error] = found({"tupe-a": None}, failures={"bert-a": "RuntimeError: no"})
    assert error.verdict == "failed" and error.measured == "bert-a, 64 x 512"


def test_a_failed_launch_of_the_ranks_is_a_finding_beside_the_others(programs, tmp_path):
    from findings import of_ranks

    two = {"zero_stage": 0, "ranks": 2, "median_seconds": [0.2], "exchanged_bytes": {}}
    failed = {"shape": [12, 768, 512, 64], "failures": {"ZeRO-0, 1 rank(s)": "RuntimeError: no"}}
    results = [{**two, "predicted_bytes": 0}, failed]
    (tmp_path / "ranks.numbers.json").write_text(json.dumps({"results": results}))
    measured, error = of_ranks(tmp_path, MACHINE)
    assert "200 ms, efficiency -" in measured.result
    assert error.verdict == "failed" and "ZeRO-0, 1 rank(s)" in error.measured


def test_speed_below_a_goal_is_missed_and_no_result_of_a_dry_run(programs):
    from findings import goal

    def verdict(is_reached, **changed):
        return goal({**MACHINE, **changed}, "m", "r", "l", is_reached=is_reached).verdict

    assert (verdict(True), verdict(False)) == ("passed", "missed")
    assert verdict(True, dry_run=True) == verdict(False, dry_run=True) == "measured"


def test_the_few_kernels_that_are_tried_first_exist(programs):
    """On a machine without a GPU, where none of them runs: pytest collects them."""
    from parts import PARTS

    [part] = [part for part in PARTS if part.name == "kernels_small"]
    words = [word for word in part.words if "{" not in word and word != "--junitxml"]
    finished = subprocess.run(
        [sys.executable, *words, "--collect-only"], cwd=ROOT, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stdout[-2000:]
    assert "test_the_compiled_attention_kernels_follow_the_formula" in finished.stdout


def test_every_file_with_tests_for_a_gpu_is_run(programs):
    from parts import GPU_TESTS

    mark = "pytest.mark." + "gpu"
    files = (ROOT / "tests").rglob("test_*.py")
    found = {str(file.relative_to(ROOT)) for file in files if mark in file.read_text()}
    assert found == set(GPU_TESTS)


@pytest.mark.slow("runs every part of a session in small")
def test_a_dry_run_runs_every_part(tmp_path):
    finished = session_command("--dry-run", tmp_path)
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-3000:]
    # The folder of a test may be wider than a terminal.
    printed = [line for line in finished.stdout.splitlines() if str(tmp_path) not in line]
    assert max(map(len, printed)) <= 80
    statuses = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    parts = {name: found["status"] for name, found in statuses.items() if "." not in name}
    assert len(parts) == 12 and set(parts.values()) == {"passed", "skipped"}
    assert [name for name, status in parts.items() if status == "skipped"] == ["gpu_tests"]
    table = (tmp_path / "summary.md").read_text()
    assert "losses after the resume | the same bits | the same bits | passed |" in table
