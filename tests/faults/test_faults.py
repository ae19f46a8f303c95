"""Runs that are disturbed and resumed end as undisturbed ones, bit for bit, with each sample once.

The log of samples must hold each of the run in order; metrics, final weights and moments are equal.
"""

import random
import re
import signal
import time

import psutil
import pytest

from tests.faults.disturbed import CANNOT_MOUNT, ROOM_BYTES
from tests.faults.material import BEFORE, NEWEST, SAVE_EVERY, STEPS, Variant
from tests.pretrain.checkpoint.test_format import flip
from tests.pretrain.conftest import lines
from tests.selection import mostly_slow

ABOUT_THE_DISK = re.compile("no space left|file too large", re.IGNORECASE)


@pytest.mark.parametrize(
    "variant",
    mostly_slow([(Variant(n),) for n in range(3)] + [(Variant(3, 2),)], "further stages, ranks"),
)
def test_kills_at_random_moments(new_run, variant):
    """SIGKILL of all ranks, as by a loss of power: in the set-up and twice in any steps after."""
    run = new_run(variant)
    moments = random.Random(variant.name)
    for steps in (0, moments.randint(1, 7), moments.randint(1, 7)):
        seconds = moments.uniform(0, 0.1 if steps else 0.2)
        assert -signal.SIGKILL in run.start("killed_after", steps, seconds).wait()
    if not run.is_finished:
        run.finish()
    run.judge()


@pytest.mark.parametrize(
    ("variant", "states"),  # of each step, -1: of the set-up
    mostly_slow(
        [
            (Variant(1), {NEWEST - 1: 2}),
            (Variant(1), {-1: 3, NEWEST - 1: 8, STEPS - 1: 3}),
            (Variant(3, 2), {NEWEST - 1: 2}),
        ],
        "more states of a save, and some of the beginning and the end",
    ),
)
def test_kills_at_the_calls_that_change_the_run_folder(new_run, tmp_path, variant, states):
    """At creating, renaming and removing; the third save removes a checkpoint too."""
    whole = new_run(variant)
    whole.finish("copied", whole.folder, tmp_path, list(states))
    for step, number in states.items():
        found = sorted(tmp_path.glob(f"{step}-*"))
        assert len(found) > 4
        for state in found[:: -(-len(found) // number)]:
            run = whole.copy(tmp_path / f"of-{state.name}", state)
            run.finish()
            run.judge()


def test_a_damaged_checkpoint_gives_way_to_the_one_before(new_run):
    """Which damages are noticed, the tests of the format show."""
    run = new_run()
    run.start("killed", NEWEST + 1).wait()
    assert run.checkpoints() == [BEFORE, NEWEST]
    flip(run.folder / f"checkpoints/step_{NEWEST:08d}/part_00000.safetensors")
    run.finish()
    assert run.first_step() == BEFORE
    run.judge()


@pytest.mark.slow("mounts a disk")
def test_a_full_disk_costs_the_saves_that_it_meets_and_nothing_else(new_run, tmp_path):
    """Full for the saves after steps 8 and 12; the lines of metrics still find room."""
    disk, copies = tmp_path / "disk", tmp_path / "copies"
    disk.mkdir()
    run = new_run(folder=disk / "run")
    fault = (64 << 20, ROOM_BYTES, SAVE_EVERY + 2, NEWEST + 2, copies)
    launch = run.start("full_disk", disk, *fault)
    if launch.wait() == [CANNOT_MOUNT]:
        pytest.skip("neither root nor user namespaces: no tmpfs can be mounted")
    assert launch.statuses() == [0], launch.output[-3000:]
    run.folder = copies / "after"
    run.judge()
    # A line for each save that failed; while it fills the disk, one for each file of metrics.
    lines = list(filter(ABOUT_THE_DISK.search, re.split(r"[\r\n]+", launch.output)))
    saves = [line for line in lines if "the checkpoint of step" in line]
    others = [line for line in lines if line not in saves]
    assert 1 <= len(saves) <= 2 and len(others) == len(set(others)), launch.output[-1500:]
    assert run.checkpoints() == [SAVE_EVERY, STEPS]
    left = run.copy(tmp_path / "left", copies / "while")  # what it had left is good
    left.finish()
    assert left.first_step() == SAVE_EVERY
    left.judge()


def rank_process(launch, rank):
    """Return the trainer of one rank under a launcher."""
    found = []
    for process in psutil.Process(launch.processes[0].pid).children(recursive=True):
        variables, parents = (each.environ().get("RANK") for each in (process, process.parent()))
        if variables == str(rank) and parents is None:  # the launchers have no rank themselves
            found.append(process)
    return found[0]


@pytest.mark.slow("under a real launcher")
@pytest.mark.ranks
def test_a_rank_that_is_killed_ends_the_job_within_half_a_minute(new_run):
    """A time-out of a collective would take half an hour."""
    run = new_run(Variant(1, 2))
    launch = run.start("slow", SAVE_EVERY, STEPS, 0.3, kind="deepspeed")
    launch.wait_until(lambda: SAVE_EVERY in run.checkpoints())
    ranks = [rank_process(launch, each) for each in range(2)]
    ranks[0].kill()
    assert launch.wait(30) != [0]
    assert psutil.wait_procs(ranks, timeout=30)[1] == []
    assert launch.output.count("lost another rank (Connection ") == 1


@pytest.mark.slow("waits for a rank that is stopped")
@pytest.mark.ranks
def test_while_a_rank_is_stopped_the_other_waits_and_prints_its_stacks(new_run):
    run = new_run(Variant(1, 2))
    launch = run.start("slow", 2 * SAVE_EVERY, 3 * SAVE_EVERY, 0.2)
    launch.wait_until(lambda: run.steps_begun() > 2 * SAVE_EVERY + 2)
    launch.send(signal.SIGSTOP, 1)
    began, end = run.steps_begun(), time.monotonic() + 15
    launch.wait_until(lambda: time.monotonic() > end)
    assert run.steps_begun() - began <= 2
    launch.send(signal.SIGCONT, 1)
    assert launch.wait() == [0, 0]
    assert "Timeout (0:00:0" in launch.output and "in _take_steps" in launch.output
    run.judge()


@pytest.mark.ranks
@pytest.mark.parametrize(
    "journey",  # (ZeRO stage, ranks) of each launch; the last one ends the run
    mostly_slow([[(1, 1), (1, 2)], [(2, 2), (3, 3), (0, 1)]], "another journey"),
)
def test_a_run_that_is_resumed_elsewhere_has_the_samples_and_losses_of_one_that_stays(
    new_run, material, journey
):
    """Losses within 1e-4: fp32, another order of summation, grown over the steps of a run."""
    reference = Variant(1, 1, is_elastic=True)
    run = new_run(reference)
    for place, (stage, ranks) in enumerate(journey[:-1], start=1):
        step = (place + 1) * SAVE_EVERY
        run.variant = Variant(stage, ranks, is_elastic=True)
        run.words = material.words(run.variant)
        launch = run.start("slow", step, STEPS, 0.1, elastic=True)
        launch.wait_until(lambda step=step: step in run.checkpoints())
        assert launch.kill()
    run.variant = Variant(*journey[-1], is_elastic=True)
    run.words = material.words(run.variant)
    run.finish(elastic=True)
    assert run.samples() == material.expected_samples
    for name in ("metrics.jsonl", "evals.jsonl"):
        ours, theirs = (lines(each, name) for each in (run.folder, material.reference(reference)))
        assert [line["step"] for line in ours] == [line["step"] for line in theirs]
        found = [line["loss"] for line in ours]
        assert found == pytest.approx([line["loss"] for line in theirs], rel=1e-4)


@pytest.mark.parametrize(
    ("variant", "number", "rank", "kind"),
    mostly_slow(
        [
            (Variant(1), signal.SIGTERM, 0, None),
            (Variant(3, 2), signal.SIGTERM, 1, None),
            (Variant(1, 2), signal.SIGTERM, None, "torchrun"),
        ],
        "several ranks",
    ),
)
@pytest.mark.ranks
def test_a_signal_saves_the_step_and_the_run_goes_on(new_run, variant, number, rank, kind):
    """To a process, to one of two ranks, to torchrun."""
    run = new_run(variant)
    launch = run.start("slow", SAVE_EVERY + 1, STEPS, 0.3, kind=kind)
    launch.wait_until(lambda: run.steps_begun() > SAVE_EVERY + 2)
    launch.send(number, rank)
    statuses = launch.wait()
    if kind is None:  # torchrun has a status and a traceback of its own for a signal
        assert set(statuses) == {0} and "Traceback" not in launch.output, launch.output[-3000:]
    assert not run.is_finished and "--resume" in launch.output
    assert run.checkpoints()[-1] > SAVE_EVERY and not list(run.folder.glob("checkpoints/*.partial"))
    run.finish()
    run.judge()
