"""SIGKILL at random moments, one after the other, until the run is finished in spite of them."""

import time

from tests.faults.case import Bench, Case
from tests.faults.material import Variant
from tests.faults.outcome import NotSurvivedError
from tests.faults.run import Run

KILLS_PER_CASE, KILLS_PER_WORLD = 5, 2
WORKERS = (0, 2)


def cases(count: int, stages: tuple[int, ...] = (0, 1, 2, 3)) -> list[Case]:
    """Return at least `count` kills, spread over ZeRO stages and numbers of loader workers."""
    number = -(-count // KILLS_PER_CASE)
    places = [(Variant(stage), workers) for workers in WORKERS for stage in stages]
    return [
        _case("kills", *places[index % len(places)], min(KILLS_PER_CASE, count), f"{index:02d}: ")
        for index in range(number)
    ]


def world_cases() -> list[Case]:
    """Return kills of all ranks at once, as by a power cut, on 2 and 3 ranks at each ZeRO stage."""
    variants = [Variant(stage, ranks) for ranks in (2, 3) for stage in range(4)]
    return [_case("worlds", variant, 0, KILLS_PER_WORLD) for variant in variants]


def _case(kind: str, variant: Variant, workers: int, kills: int, number: str = "") -> Case:
    name = f"{number}{variant.name}, {workers} loader workers"
    return Case(kind, name, kills, (variant,), lambda bench: _kill(bench, variant, workers, kills))


def _kill(bench: Bench, variant: Variant, workers: int, kills: int) -> None:
    """Kill runs until so many kills have hit a living trainer; each run is then finished."""
    words = ("--data.loader_workers", str(workers))
    seconds = _quiet_seconds(bench, variant, words)
    hit = 0
    for number in range(10 * kills):
        if hit >= kills:
            break
        run = Run(bench.material, bench.place / f"{number:02d}", variant, words=words)
        with bench.faults("killed", 0) as one_more:
            while not run.is_finished and hit < kills:
                launch, moment = run.start(), bench.random.uniform(0, seconds)
                end = time.monotonic() + moment
                launch.wait_until(lambda end=end: time.monotonic() > end)
                if run.kill(launch):
                    hit += 1
                    one_more()
            run.finish()
            bench.judge(run)


def _quiet_seconds(bench: Bench, variant: Variant, words: tuple[str, ...]) -> float:
    """Return how long a whole run takes, and check that a forked one is the command line's."""
    run, start = Run(bench.material, bench.place / "quiet", variant, words=words), time.monotonic()
    with bench.faults("not disturbed at all", 0):
        run.start().end_well()
        seconds = time.monotonic() - start
        bench.judge(run)
        return seconds
    raise NotSurvivedError("an undisturbed run differs from its reference")
