"""Checkpoints that were damaged between two launches."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from tests.faults.case import Bench, Case
from tests.faults.material import SAVE_EVERY, Variant
from tests.faults.outcome import NotSurvivedError
from tests.faults.run import Run
from tests.faults.sample_log import wait_for_saves
from tests.pretrain.checkpoint.forged import reseal

NEWEST, BEFORE = 3 * SAVE_EVERY, 2 * SAVE_EVERY


def flip_a_byte(file: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def truncate(file: Path) -> None:
    """Cut a third off."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * 2 // 3])


def empty(file: Path) -> None:
    """Leave nothing but the name."""
    file.write_bytes(b"")


def replace_by_the_one_before(folder: Path) -> None:
    """Give the checkpoint before the name of this one."""
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name(f"step_{BEFORE:08d}"), folder)


# Of a whole checkpoint.
FORGERIES: dict[str, Callable[[Path], None]] = {
    "counters before the beginning": lambda folder: reseal(
        folder, lambda content: content["progress"].update(step=-5)
    ),
    "another step's": replace_by_the_one_before,
}

DAMAGES: dict[str, Callable[[Path], None]] = {
    "a flipped bit": flip_a_byte,
    "truncated": truncate,
    "missing": Path.unlink,
    "empty": empty,
}


def cases(variants: tuple[Variant, ...], damages: tuple[str, ...] = tuple(DAMAGES)) -> list[Case]:
    """Return each damage to each file of the newest checkpoint, and all damaged."""
    return [_case(variant, damages) for variant in variants]


def _case(variant: Variant, damages: tuple[str, ...]) -> Case:
    faults = 3 * len(damages) + len(FORGERIES) + 1
    return Case(
        "checkpoints",
        variant.name,
        faults,
        (variant,),
        lambda bench: _damage(bench, variant, damages),
    )


def _damage(bench: Bench, variant: Variant, damages: tuple[str, ...]) -> None:
    stopped = stopped_run(bench, variant)
    newest = stopped.checkpoints()[-1]
    files = sorted(file.relative_to(newest) for file in newest.rglob("*") if file.is_file())
    for name in damages:
        for file in files:
            place = bench.place / f"{name} {file}".replace("/", " ").replace(" ", "-")
            run = copy_of(stopped, place)
            with bench.faults(f"{file} {name}"):
                DAMAGES[name](run.checkpoints()[-1] / file)
                _resume_from_the_one_before(bench, run)
    for name, forge in FORGERIES.items():
        run = copy_of(stopped, bench.place / name.replace(" ", "-"))
        with bench.faults(name):
            forge(run.checkpoints()[-1])
            _resume_from_the_one_before(bench, run)
    run = copy_of(stopped, bench.place / "all")
    with bench.faults("all damaged"):
        for folder in run.checkpoints():
            for file in filter(Path.is_file, folder.rglob("*")):
                truncate(file)
        launch = run.start()
        check_one_clear_line(launch.wait(), launch.output, "checkpoint")


def _resume_from_the_one_before(bench: Bench, run: Run) -> None:
    launch = run.start()
    launch.end_well()
    if run.last_first_step() != BEFORE:
        raise NotSurvivedError(f"resumed at step {run.last_first_step()} instead of {BEFORE}")
    if f"step_{NEWEST:08d}" not in launch.output:
        raise NotSurvivedError(f"no warning names the damaged one: {launch.tail()}")
    bench.judge(run)


def stopped_run(bench: Bench, variant: Variant, *, shards: Path | None = None) -> Run:
    """Return a run that was killed a little after its checkpoint NEWEST."""
    run = Run(bench.material, bench.place / "stopped", variant, shards=shards)
    launch = run.start(before_step=_die_after_newest)
    launch.wait_until(lambda: any(launch.statuses()))
    run.kill(launch)
    if [int(folder.name[-8:]) for folder in run.checkpoints()] != [BEFORE, NEWEST]:
        raise NotSurvivedError(f"found {run.checkpoints()}: {launch.tail()}")
    return run


def copy_of(run: Run, place: Path) -> Run:
    """Return a copy of a run with its logs, as if it had been made in another place."""
    shutil.copytree(run.place, place)
    copied = Run(run.material, place, run.variant, shards=run.shards)
    copied.num_launches = run.num_launches
    return copied


def check_one_clear_line(statuses: list[int], output: str, *words: str) -> None:
    """Check that a launch was refused with one line that says these words.

    Raises:
        NotSurvivedError: it was not.
    """
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    is_clear = len(errors) == 1 and all(word in errors[0] for word in words)
    if not any(statuses) or not is_clear or "Traceback" in output:
        raise NotSurvivedError(f"not refused in one clear line: {statuses} {output[-1500:]}")


def _die_after_newest(step: int) -> None:
    if step == NEWEST + 1:
        wait_for_saves()
        os.kill(os.getpid(), signal.SIGKILL)
