"""Starts that would wait for ever."""

import os
from pathlib import Path

from torch.utils.file_baton import FileBaton

from pretrain.doctor.hanging_starts import build_locks, launcher_variables


def lock_of(machine, name="fused_adam"):
    return machine.write(f"home/.cache/torch_extensions/py311_cu130/{name}/lock", "")


def test_the_lock_of_a_killed_build_is_a_problem_with_the_command_that_removes_it(machine):
    assert build_locks(machine.context()).status == "ok"
    lock = lock_of(machine)
    os.utime(lock, (lock.stat().st_atime, lock.stat().st_mtime - 2 * 3600))
    found = build_locks(machine.context())
    assert (
        found.status == "problem" and f"{lock}, 2 h 00 min old, held by no process" in found.message
    )
    assert found.fix.startswith(f"rm {lock} ")


def test_a_lock_whose_process_compiles_is_no_problem(machine):
    lock = lock_of(machine)
    (machine.root / "proc/17").mkdir()
    (machine.root / "proc/17/cwd").symlink_to(lock.parent)
    (machine.root / "proc/18/fd").mkdir(parents=True)
    (machine.root / "proc/18/cwd").symlink_to(machine.root)
    (machine.root / "proc/18/fd/5").symlink_to(lock)
    (machine.root / "proc/19").mkdir()  # another user's: nothing in it can be read
    found = build_locks(machine.context())
    assert found.status == "ok" and "held by process 17, 18" in found.message


def test_only_the_stale_ones_of_several_locks_are_removed(machine):
    held, stale = lock_of(machine, "held"), lock_of(machine, "stale build")
    (machine.root / "proc/17").mkdir()
    (machine.root / "proc/17/cwd").symlink_to(held.parent)
    found = build_locks(machine.context())
    assert found.status == "problem" and f"rm '{stale}' " in found.fix
    assert str(held) not in found.fix


def test_the_lock_that_torch_holds_is_seen_in_this_very_process(machine):
    folder = machine.root / "extensions" / "operation"
    folder.mkdir(parents=True)
    baton = FileBaton(str(folder / "lock"))
    assert baton.try_acquire()
    environment = {"TORCH_EXTENSIONS_DIR": str(folder.parent)}
    context = machine.context(environment=environment, root=Path("/"))
    assert f"held by process {os.getpid()}" in build_locks(context).message
    baton.release()
    assert build_locks(context).message.startswith("none in")


def test_what_a_launcher_left_in_the_shell_is_a_problem(machine):
    left = {"RANK": "0", "WORLD_SIZE": "2"}
    found = launcher_variables(machine.context(environment=left))
    assert found.status == "problem" and found.fix == "unset RANK WORLD_SIZE"
    assert launcher_variables(machine.context()).status == "ok"
