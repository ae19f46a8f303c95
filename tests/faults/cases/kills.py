"""SIGKILL at random moments, one after the other, until the run is finished in spite of them."""

import time
from collections import Counter

from tests.faults.case import Bench, Case
from tests.faults.material import Variant
from tests.faults.outcome import NotSurvivedError
from tests.faults.run import Run

KILLS_PER_CASE = 5
WORKERS = (0, 2)


def cases(count: int, stages: tuple[int, ...] = (0, 1, 2, 3)) -> list[Case]:
    """Return at least `count` kills, spread over ZeRO stages and numbers of loader workers."""
    number = -(-count // KILLS_PER_CASE)
    places = [(stage, workers) for workers in WORKERS for stage in stages]
    return [
        _case(index, *places[index % len(places)], min(KILLS_PER_CASE, count))
        for index in range(number)
    ]


def _case(index: int, stage: int, workers: int, kills: int) -> Case:
    variant = Variant(zero_stage=stage)
    return Case(
        "kills",
        f"{index:02d}: ZeRO-{stage}, {workers} loader workers",
        kills,
        (variant,),
        lambda bench: _kill(bench, variant, workers, kills),
    )


def _kill(bench: Bench, variant: Variant, workers: int, kills: int) -> None:
    """Kill runs until so many kills have hit a living trainer; each run is then finished."""
    words = ("--data.loader_workers", str(workers))
    seconds = _quiet_seconds(bench, variant, words)
    moments: Counter[str] = Counter()
    for number in range(10 * kills):
        if moments.total() >= kills:
            break
        run = Run(bench.material, bench.place / f"{number:02d}", variant, words=words)
        with bench.faults("killed", 0) as one_more:
            while not run.is_finished and moments.total() < kills:
                launch, moment = run.start(), bench.random.uniform(0, seconds)
                end = time.monotonic() + moment
                launch.wait_until(lambda end=end: time.monotonic() > end)
                where = _where(run)
                if run.kill(launch):
                    moments[where] += 1
                    one_more()
            run.finish()
            bench.judge(run)
    bench.note(", ".join(f"{number} during {where}" for where, number in sorted(moments.items())))


def _quiet_seconds(bench: Bench, variant: Variant, words: tuple[str, ...]) -> float:
    """Return how long a whole run takes, and check that a forked one is the command line's."""
    run, start = Run(bench.material, bench.place / "quiet", variant, words=words), time.monotonic()
    with bench.faults("not disturbed at all", 0):
        run.start().end_well()
        seconds = time.monotonic() - start
        bench.judge(run)
        return seconds
    raise NotSurvivedError("an undisturbed run differs from its reference")


def _where(run: Run) -> str:
    if run.is_finished:
        return "the end"
    if run.is_saving():
        return "saving"
    return "training" if run.steps_begun() else "set-up"
