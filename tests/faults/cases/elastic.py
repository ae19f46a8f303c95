"""A run that is killed, and resumed on another number of ranks at another ZeRO stage."""

import time

from tests.faults.case import Bench, Case
from tests.faults.comparison import read_lines
from tests.faults.material import SAVE_EVERY, Variant
from tests.faults.outcome import NotSurvivedError
from tests.faults.run import Run

# fp32, another order of summation, grown over the steps of a run.
TOLERANCE = 1e-4

# (ZeRO stage, ranks) of each launch; the last one ends the run.
JOURNEYS = (
    ((1, 1), (1, 2)),
    ((1, 2), (1, 1)),
    ((0, 1), (3, 2), (1, 1)),
    ((3, 3), (2, 2), (0, 1)),
    ((2, 2), (3, 3), (3, 1)),
    ((1, 3), (0, 2), (2, 3)),
)


def cases(journeys: tuple[tuple[tuple[int, int], ...], ...] = JOURNEYS) -> list[Case]:
    """Return a case for each sequence of worlds."""
    reference = Variant(1, 1, is_elastic=True)
    return [
        Case(
            "elastic",
            " to ".join(f"ZeRO-{stage} on {ranks}" for stage, ranks in journey),
            len(journey) - 1,
            (reference,),
            lambda bench, journey=journey: _travel(bench, journey, reference),
        )
        for journey in journeys
    ]


def _travel(bench: Bench, journey: tuple[tuple[int, int], ...], reference: Variant) -> None:
    run = Run(bench.material, bench.place, reference)
    with bench.faults("another world", len(journey) - 1):
        for place, (stage, ranks) in enumerate(journey, start=1):
            run.variant = Variant(stage, ranks, is_elastic=True)
            run.words = bench.material.words(run.variant)
            run.resume_words = ["--elastic"]
            if place < len(journey):
                _kill_after_a_checkpoint(run, ranks, place * 2 * SAVE_EVERY)
            else:
                run.start(world_size=ranks).end_well()
        count = run.count()
        bench.outcome.lost += count.lost
        bench.outcome.repeated += count.repeated
        if not count.is_exact:
            raise NotSurvivedError(f"the samples are others: {count}")
        _check_losses(bench, run, reference)


def _kill_after_a_checkpoint(run: Run, ranks: int, step: int) -> None:
    # Slowly, so that a busy machine does not come to the end before the kill.
    launch = run.start(before_step=lambda now: time.sleep(0.1 * (now > step)), world_size=ranks)
    launch.wait_until(lambda: run.has_checkpoint(step))
    if not run.kill(launch):
        raise NotSurvivedError(f"ended before it could be killed: {launch.tail()}")


def _check_losses(bench: Bench, run: Run, reference: Variant) -> None:
    worst = 0.0
    for name in ("metrics.jsonl", "evals.jsonl"):
        ours = read_lines(run.folder, name)
        theirs = read_lines(bench.material.reference(reference), name)
        if [line["step"] for line in ours] != [line["step"] for line in theirs]:
            raise NotSurvivedError(f"{name} has other steps than that of the undisturbed run")
        for a, b in zip(ours, theirs, strict=True):
            worst = max(worst, abs(a["loss"] - b["loss"]) / b["loss"])
    if worst > TOLERANCE:
        raise NotSurvivedError(f"losses differ by {worst:.1e}, more than rounding: {TOLERANCE:.0e}")
