"""A case: a few faults of one kind, in a process of its own that judges its runs."""

import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .launch import adopt_orphans, die_with_parent, kill_descendants
from .material import Material, Variant
from .outcome import NotSurvivedError, Outcome, SkippedError, as_record
from .run import Run


@dataclass(frozen=True)
class Case:
    """A few faults that belong together; `act` causes them."""

    kind: str
    name: str
    faults: int  # how many it is going to try, for the progress bar
    variants: tuple[Variant, ...]  # whose references it needs
    act: Callable[["Bench"], None]


class Bench:
    """The folder of a case, and its outcome."""

    def __init__(self, material: Material, case: Case, place: Path, seed: int) -> None:
        self.material, self.place = material, place
        self.random = random.Random(f"{seed} {case.kind} {case.name}")
        self.outcome = Outcome(case.kind, case.name)

    @contextmanager
    def faults(self, what: str, number: int = 1) -> Iterator[Callable[[], None]]:
        """Try faults; they are survived if the block ends and has found nothing wrong.

        Yields:
            A function that counts one fault more.
        """
        tried = [number]

        def one_more() -> None:
            tried[0] += 1

        try:
            yield one_more
        except NotSurvivedError as error:
            self.outcome.problems.append(f"{what}: {error}")
        else:
            self.outcome.survived += tried[0]
        finally:
            self.outcome.tried += tried[0]

    def judge(self, run: Run) -> None:
        """Compare a finished run with the undisturbed one.

        Raises:
            NotSurvivedError: it is not the same.
        """
        count = run.count()
        self.outcome.lost += count.lost
        self.outcome.repeated += count.repeated
        problems = run.problems()
        if problems:
            raise NotSurvivedError(f"in {run.place}: {'; '.join(problems[:4])}")


def run_case(case: Case, material: Material, place: Path, seed: int) -> Any:
    """Start a case in a process of its own; it writes place/outcome.json before it ends."""
    place.mkdir(parents=True)
    arguments = (case, material, place, seed, os.getpid())
    process = get_context("fork").Process(target=_become_case, args=arguments)
    process.start()
    return process


def outcome_of(case: Case, place: Path) -> Outcome:
    """Read the outcome of a case that has ended."""
    file = place / "outcome.json"
    if file.exists():
        return Outcome(**json.loads(file.read_text()))
    problem = "the case itself died, or ran past its limit"
    return Outcome(case.kind, case.name, tried=case.faults, problems=[problem])


def _become_case(case: Case, material: Material, place: Path, seed: int, parent: int) -> None:
    die_with_parent(parent)
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    bench, start = Bench(material, case, place, seed), time.monotonic()
    try:
        case.act(bench)
    except SkippedError as error:
        bench.outcome.skipped = str(error)
    except Exception:
        bench.outcome.problems.append(f"the suite itself failed: {traceback.format_exc()}")
    finally:
        kill_descendants()
    outcome = replace(bench.outcome, seconds=time.monotonic() - start)
    partial = place / "outcome.partial"
    partial.write_text(json.dumps(as_record([outcome])[0]))
    partial.replace(place / "outcome.json")
