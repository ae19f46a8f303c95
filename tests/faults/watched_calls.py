"""The calls that change a folder, whatever they are made by.

Python's audit events for opening, renaming, removing and creating, and the moment after a file was
opened, in which it is empty. A kill at each of them in turn leaves every state that the disk can be
left in, except for half-written content, which random kills leave.
"""

import builtins
import io
import os
import shutil
import signal
import sys
import threading

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def copy_if_changed(folder, copy, seen):
    """Copy what a kill would leave of a folder, while this process stands still."""
    files = [(str(file), file.stat()) for file in sorted(folder.rglob("*"))]
    state = tuple((name, status.st_size, status.st_mtime_ns) for name, status in files)
    if not files or state in seen:
        return
    seen.add(state)
    process = os.getpid()
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.kill(process, signal.SIGSTOP)
    try:
        shutil.copytree(folder, copy)
    finally:
        os.kill(process, signal.SIGCONT)
        os._exit(0)


def watch(folder, event):
    """Call `event` before whatever changes the folder, and after a file was opened to write."""
    inside = threading.local()
    process = os.getpid()

    def happens(path):
        # What the event itself does is no event, nor is what a child process does.
        if getattr(inside, "event", False) or os.getpid() != process:
            return
        # TensorBoard writes its file whenever it likes.
        if path.startswith(str(folder)) and "tfevents" not in path:
            inside.event = True
            event()
            inside.event = False

    def audited(kind, arguments):
        if kind in CHANGES:
            happens(_path(arguments[0], arguments[-1]))
        elif kind == "open":
            name, mode, flags = arguments
            if set(mode or "") & set("wax+") or flags & WRITES:
                happens(_path(name, -1))

    true_open = io.open

    def watched_open(file, mode="r", *arguments, **options):
        opened = true_open(file, mode, *arguments, **options)
        if set(mode) & set("wax+"):
            happens(_path(file, -1))
        return opened

    sys.addaudithook(audited)
    io.open = builtins.open = watched_open


def _path(name, folder):
    if isinstance(name, int):
        return os.readlink(f"/proc/self/fd/{name}")
    path = os.fsdecode(name)
    # Removing a tree names its files by their folder's descriptor.
    if not path.startswith("/") and isinstance(folder, int) and folder >= 0:
        path = f"{os.readlink(f'/proc/self/fd/{folder}')}/{path}"
    return os.path.abspath(path)
