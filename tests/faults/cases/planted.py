"""A planted defect, judged by the suite like any run; for the test of the suite.

    python -m tests.faults.cases.planted FOLDER

After a kill the run continues with the batches of one micro-batch before: half a step is read
twice, and at the end half a step is missing. Prints the verdict of the suite as JSON.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.faults.__main__ import make_ready_to_fork
from tests.faults.case import Bench, Case, outcome_of, run_case
from tests.faults.material import SAVE_EVERY, Material, Variant
from tests.faults.outcome import Outcome
from tests.faults.run import Run

# ZeRO-0 on one rank: the least work.
VARIANT = Variant(zero_stage=0)


def main(folder: Path) -> None:
    """Do it, with and without the defect."""
    make_ready_to_fork()
    material = Material(folder)
    judge(Case("shards", "", 1, (), lambda bench: material.prepare()), material)
    judge(Case("reference", "", 1, (), _train_reference), material)
    outcomes = {
        "sound": judge(Case("sound", "", 1, (), lambda bench: _resume(bench, 0)), material),
        "planted": judge(Case("planted", "", 1, (), lambda bench: _resume(bench, 1)), material),
    }
    print(json.dumps({name: asdict(outcome) for name, outcome in outcomes.items()}))


def judge(case: Case, material: Material) -> Outcome:
    """Run one case to its end."""
    place = material.folder / "cases" / case.kind
    process = run_case(case, material, place, 0)
    while process.exitcode is None:
        time.sleep(0.01)
    return outcome_of(case, place)


def _train_reference(bench: Bench) -> None:
    folder = bench.material.reference(VARIANT)
    Run(bench.material, bench.place, VARIANT, folder=folder).start().end_well()


def _resume(bench: Bench, batches_back: int) -> None:
    run = Run(bench.material, bench.place, VARIANT)
    with bench.faults("killed"):
        launch = run.start(before_step=lambda step: time.sleep(0.05 * (step > SAVE_EVERY)))
        launch.wait_until(lambda: run.has_checkpoint(SAVE_EVERY))
        assert run.kill(launch)
        run.start(prepare=lambda rank: _read_again(batches_back)).end_well()
        bench.judge(run)


def _read_again(batches_back: int) -> None:
    from pretrain.data.batches import TrainingBatches

    read = TrainingBatches.__getitem__
    TrainingBatches.__getitem__ = lambda self, index: read(self, index - batches_back)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
