"""One rank of several that dies, or is stopped for a while."""

import signal
import time

import psutil

from pretrain.train import trainer
from tests.faults.case import Bench, Case
from tests.faults.launch import descendants, rank_process
from tests.faults.material import SAVE_EVERY, Variant
from tests.faults.outcome import NotSurvivedError
from tests.faults.run import Run

# Importing torch takes longer than that here; a time-out of a collective takes half an hour.
MOST_SECONDS = 30.0
STOPPED_SECONDS, HANG_MINUTES = 15.0, 0.1
SLOW_STEPS = range(2 * SAVE_EVERY, 3 * SAVE_EVERY)


def killed_cases(launchers: tuple[str, ...], ranks: tuple[int, ...]) -> list[Case]:
    """Return the death of a rank under each launcher."""
    return [_killed(launcher, rank) for launcher in launchers for rank in ranks]


def stopped_cases() -> list[Case]:
    """Return each of two ranks, stopped."""
    variant = Variant(1, 2)
    return [
        Case(
            "stopped rank",
            f"rank {rank}",
            1,
            (variant,),
            lambda bench, rank=rank: _stop(bench, rank),
        )
        for rank in (1, 0)
    ]


def _killed(launcher: str, rank: int) -> Case:
    variant = Variant(1, 2)
    name = f"rank {rank} under {launcher}"
    return Case(
        "killed rank", name, 1, (variant,), lambda bench: _kill(bench, variant, launcher, rank)
    )


def _kill(bench: Bench, variant: Variant, launcher: str, rank: int) -> None:
    run = Run(bench.material, bench.place, variant)
    with bench.faults("a killed rank"):
        launch = run.start_command(launcher)
        launch.wait_until(lambda: run.has_checkpoint(SAVE_EVERY))
        victim = rank_process(launch, rank)
        if victim is None or run.is_finished:
            raise NotSurvivedError(f"no rank {rank} to kill: {launch.tail()}")
        trainers = descendants(launch.pids[0])
        victim.kill()
        launch.wait(MOST_SECONDS)
        _, alive = psutil.wait_procs(trainers, timeout=MOST_SECONDS)
        if alive:
            raise NotSurvivedError(f"still alive after the launcher: {alive}")
        run.finish(lambda: run.start_command(launcher))
        bench.judge(run)


def _stop(bench: Bench, rank: int) -> None:
    """Stop a rank until the other prints its stacks; the run continues."""
    run = Run(bench.material, bench.place, Variant(1, 2))
    with bench.faults("a stopped rank"):
        launch = run.start(before_step=_slowly)
        launch.wait_until(lambda: run.steps_begun() > SLOW_STEPS.start + 2)
        launch.send(signal.SIGSTOP, rank)
        began = run.steps_begun()
        end = time.monotonic() + STOPPED_SECONDS
        launch.wait_until(lambda: time.monotonic() > end, 2 * STOPPED_SECONDS)
        went_on = run.steps_begun() - began
        launch.send(signal.SIGCONT, rank)
        launch.end_well()
        bench.judge(run)
        if went_on > 2:
            raise NotSurvivedError(f"{went_on} steps were taken without rank {rank}")
        if "Timeout (0:00:0" not in launch.output or "in _take_steps" not in launch.output:
            raise NotSurvivedError(f"no stacks: {launch.tail()}")


def _slowly(step: int) -> None:
    """Leave time to find the ranks, and let a hang be seen soon."""
    trainer.HANG_MINUTES = HANG_MINUTES
    if step in SLOW_STEPS:
        time.sleep(0.2)
