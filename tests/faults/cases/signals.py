"""Signals that ask a run to stop: it saves, prints how to resume, and exits with status 0."""

import signal
import time

from tests.faults.case import Bench, Case
from tests.faults.launch import Launch, rank_process
from tests.faults.material import SAVE_EVERY, Variant
from tests.faults.outcome import NotSurvivedError
from tests.faults.run import Run

SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGUSR1": signal.SIGUSR1, "SIGINT": signal.SIGINT}
# Not a step at which it saves anyway.
STEP = SAVE_EVERY + 1
# One Ctrl-C can reach a process twice; what comes later is a second one.
ECHO_SECONDS, SLOW_SECONDS, AT_ONCE_SECONDS = 2.5, 40.0, 5.0


def cases(names: tuple[str, ...] = tuple(SIGNALS)) -> list[Case]:
    """Return one signal, two signals, and a signal to one of two ranks."""
    one, two = Variant(1, 1), Variant(3, 2)
    found = []
    for name in names:
        number = SIGNALS[name]
        found += [
            Case("signals", name, 1, (one,), lambda bench, n=number: _once(bench, one, n)),
            Case(
                "signals",
                f"{name} to the second of two ranks",
                1,
                (two,),
                lambda bench, n=number: _once(bench, two, n, rank=1),
            ),
            Case(
                "signals",
                f"{name}, then SIGTERM",
                1,
                (one,),
                lambda bench, n=number: _twice(bench, n),
            ),
        ]
    return found


def launcher_cases() -> list[Case]:
    """Return signals to the launcher, as a queue or a terminal sends them."""
    variant = Variant(1, 2)
    return [
        Case(
            "signals",
            "SIGTERM to torchrun",
            1,
            (variant,),
            lambda bench: _to_launcher(bench, variant),
        ),
    ]


def _once(bench: Bench, variant: Variant, number: int, rank: int | None = None) -> None:
    run = Run(bench.material, bench.place, variant)
    with bench.faults("a signal"):
        launch = run.start(before_step=lambda step: time.sleep(0.3 * (step > STEP)))
        launch.wait_until(lambda: run.steps_begun() > STEP + 1)
        launch.send(number, rank)
        launch.end_well()
        _check_end(run, launch)
        run.finish()
        bench.judge(run)


def _twice(bench: Bench, number: int) -> None:
    """Send SIGTERM, too, while the step takes too long."""
    run = Run(bench.material, bench.place, Variant(1, 1))
    with bench.faults("two signals"):
        launch = run.start(before_step=lambda step: time.sleep(SLOW_SECONDS * (step == STEP)))
        launch.wait_until(lambda: run.steps_begun() > STEP)
        time.sleep(0.3)  # it is in its slow step now
        launch.send(number)
        launch.wait_until(lambda: False, ECHO_SECONDS)
        if not launch.is_running:
            raise NotSurvivedError(f"the first one ended it at once: {launch.tail()}")
        launch.send(signal.SIGTERM)
        if launch.wait(AT_ONCE_SECONDS) == [0]:
            raise NotSurvivedError("status 0, though nothing was saved")
        run.finish()
        bench.judge(run)


def _to_launcher(bench: Bench, variant: Variant) -> None:
    run = Run(bench.material, bench.place, variant)
    with bench.faults("a signal to the launcher"):
        launch = run.start_command("torchrun")
        launch.wait_until(lambda: run.has_checkpoint(SAVE_EVERY))
        if rank_process(launch, 0) is None:
            raise NotSurvivedError(f"nothing to stop: {launch.tail()}")
        launch.send(signal.SIGTERM)
        launch.wait()  # torchrun has a status of its own for a signal
        _check_end(run, launch)
        run.finish(lambda: run.start_command("torchrun"))
        bench.judge(run)


def _check_end(run: Run, launch: Launch) -> None:
    if run.is_finished:
        raise NotSurvivedError("the run continued to its end")
    if "--resume" not in launch.output:
        raise NotSurvivedError(f"it does not say how to resume: {launch.tail()}")
    newest = int(run.checkpoints()[-1].name[-8:])
    if newest <= SAVE_EVERY or run.is_saving():
        raise NotSurvivedError(f"the newest checkpoint is that of step {newest}: nothing was saved")
