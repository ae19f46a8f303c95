"""Every rank killed at once, as by a power cut, at each number of ranks and ZeRO stage."""

import time

from tests.faults.case import Bench, Case
from tests.faults.material import Variant
from tests.faults.run import Run

KILLS = 2


def cases(variants: tuple[Variant, ...]) -> list[Case]:
    """Return a run with some kills for each variant."""
    return [
        Case("worlds", v.name, KILLS, (v,), lambda bench, v=v: _kill(bench, v)) for v in variants
    ]


def every_variant() -> tuple[Variant, ...]:
    """Return ZeRO stages 0 to 3 on 1, 2 and 3 ranks."""
    return tuple(Variant(stage, ranks) for ranks in (1, 2, 3) for stage in range(4))


def _kill(bench: Bench, variant: Variant) -> None:
    """Kill all ranks some time after the first step of a launch, at two different moments."""
    run = Run(bench.material, bench.place, variant)
    with bench.faults("all ranks killed", KILLS):
        for _ in range(KILLS):
            launch, steps = run.start(), bench.random.uniform(2, 10)
            launch.wait_until(lambda n=steps: run.steps_begun() > n)
            time.sleep(bench.random.uniform(0, 0.03))
            run.kill(launch)
        run.finish()
        bench.judge(run)
