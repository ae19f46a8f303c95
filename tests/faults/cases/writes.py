"""Kills in the middle of writing: at every call that changes the run folder.

The calls are counted in the trainer itself, whatever they are made by: Python's audit events for
opening, renaming, removing and creating, fsync, and the moment after a file was opened, in which it
is empty. A kill at each of them in turn leaves every state that the disk can be left in, except for
half-written content, which random kills leave.
"""

import builtins
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.case import Bench, Case
from tests.faults.material import SAVE_EVERY, Variant
from tests.faults.outcome import NotSurvivedError
from tests.faults.run import Run

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# The third save removes a checkpoint too: two are kept.
SAVED_STEP = 3 * SAVE_EVERY

Event = Callable[[str, str], None]


def cases(calls: int | None) -> list[Case]:
    """Return kills at every call of a save, of the beginning and of the end; or at so many."""
    if calls is not None:
        return [_injected(Variant(1), "a save", calls)]
    variants = (Variant(1), Variant(3), Variant(2, 2))
    return [_injected(variant, part, None) for variant in variants for part in PARTS]


def _injected(variant: Variant, part: str, calls: int | None) -> Case:
    return Case(
        "writes",
        f"at every call of {part}, {variant.name}",
        calls or 20,
        (variant,),
        lambda bench: _kill_at_calls(bench, variant, part, calls),
    )


def _kill_at_calls(bench: Bench, variant: Variant, part: str, calls: int | None) -> None:
    counting = Run(bench.material, bench.place / "counting", variant)
    log = bench.place / "calls.txt"
    counting.start(prepare=lambda rank: _watch(counting.folder, _log_to(log, rank))).end_well()
    chosen = PARTS[part](log.read_text().splitlines())
    step = 1 if calls is None else -(-len(chosen) // calls)
    for number in chosen[::step]:
        run = Run(bench.material, bench.place / f"call-{number:03d}", variant)
        with bench.faults(f"killed at call {number} of {part}"):
            launch = run.start(
                prepare=lambda rank, n=number, r=run: _watch(r.folder, _die_at(n, rank))
            )
            launch.wait_until(lambda launch=launch: any(launch.statuses()))
            if not run.kill(launch) and variant.world_size == 1:
                raise NotSurvivedError("the call was never made: the suite counts wrongly")
            run.finish()
            bench.judge(run)


def _of_beginning(lines: list[str]) -> list[int]:
    end = next(n for n, line in enumerate(lines) if "checkpoints" in line)
    return list(range(end))


def _of_save(lines: list[str]) -> list[int]:
    """Return the calls from the first that names the checkpoint to the next checkpoint."""
    in_checkpoints = [(n, line) for n, line in enumerate(lines) if "/checkpoints" in line]
    names = [f"step_{step:08d}" for step in (SAVED_STEP, SAVED_STEP + SAVE_EVERY)]
    first, end = (next(n for n, line in in_checkpoints if name in line) for name in names)
    return [n for n, _ in in_checkpoints if first <= n < end]


def _of_end(lines: list[str]) -> list[int]:
    last = max(n for n, line in enumerate(lines) if "checkpoints" in line)
    return list(range(last + 1, len(lines)))


PARTS = {"a save": _of_save, "the beginning": _of_beginning, "the end": _of_end}


def _log_to(file: Path, rank: int) -> Event:
    """Write down the calls of the first rank."""
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if rank:
        return lambda kind, path: None
    return lambda kind, path: (os.write(log, f"{kind} {path}\n".encode()), None)[1]


def _die_at(number: int, rank: int) -> Event:
    """Kill this process at one of the calls, if it is the first rank."""
    calls = [0]

    def event(kind: str, path: str) -> None:
        del kind, path
        if rank == 0 and calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        calls[0] += 1

    return event


def _watch(folder: Path, event: Event) -> None:
    """Call `event` before whatever changes the folder, and after a file was opened to write."""
    inside = threading.local()
    process = os.getpid()

    def happens(kind: str, path: str) -> None:
        # What the event itself does is no event, nor is what a child process does.
        if getattr(inside, "event", False) or os.getpid() != process:
            return
        # TensorBoard writes its file whenever it likes.
        if path.startswith(str(folder)) and "tfevents" not in path:
            inside.event = True
            event(kind, path)
            inside.event = False

    def audited(kind: str, arguments: tuple[Any, ...]) -> None:
        if kind in CHANGES:
            happens(kind, _path(arguments[0], arguments[-1]))
        elif kind == "open" and _writes(*arguments[1:]):
            happens(kind, _path(arguments[0], -1))

    true_open, true_fsync = io.open, os.fsync

    def watched_open(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        opened = true_open(file, mode, *arguments, **options)
        if set(mode) & set("wax+"):
            happens("opened", _path(file, -1))
        return opened

    def watched_fsync(file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        happens("fsync", os.readlink(f"/proc/self/fd/{number}"))
        true_fsync(file)

    sys.addaudithook(audited)
    io.open = builtins.open = watched_open
    os.fsync = watched_fsync


def _writes(mode: str | None, flags: int) -> bool:
    return bool(set(mode or "") & set("wax+")) or bool(flags & WRITES)


def _path(name: Any, folder: Any) -> str:
    if isinstance(name, int):
        return os.readlink(f"/proc/self/fd/{name}")
    path = os.fsdecode(name)
    # Removing a tree names its files by their folder's descriptor.
    if not path.startswith("/") and isinstance(folder, int) and folder >= 0:
        path = f"{os.readlink(f'/proc/self/fd/{folder}')}/{path}"
    return os.path.abspath(path)
