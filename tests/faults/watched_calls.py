"""The calls that change a folder, whatever they are made by.

Python's audit events for opening, renaming, removing and creating, fsync, and the moment after a
file was opened, in which it is empty. A kill at each of them in turn leaves every state that the
disk can be left in, except for half-written content, which random kills leave.
"""

import builtins
import io
import os
import signal
import sys
import threading

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def log_to(file):
    """Return an event that writes the calls down."""
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return lambda kind, path: os.write(log, f"{kind} {path}\n".encode())


def die_at(number):
    """Return an event that kills this process at one of the calls."""
    calls = [0]

    def event(kind, path):
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        calls[0] += 1

    return event


def watch(folder, event):
    """Call `event` before whatever changes the folder, and after a file was opened to write."""
    inside = threading.local()
    process = os.getpid()

    def happens(kind, path):
        # What the event itself does is no event, nor is what a child process does.
        if getattr(inside, "event", False) or os.getpid() != process:
            return
        # TensorBoard writes its file whenever it likes.
        if path.startswith(str(folder)) and "tfevents" not in path:
            inside.event = True
            event(kind, path)
            inside.event = False

    def audited(kind, arguments):
        if kind in CHANGES:
            happens(kind, _path(arguments[0], arguments[-1]))
        elif kind == "open" and _writes(*arguments[1:]):
            happens(kind, _path(arguments[0], -1))

    true_open, true_fsync = io.open, os.fsync

    def watched_open(file, mode="r", *arguments, **options):
        opened = true_open(file, mode, *arguments, **options)
        if set(mode) & set("wax+"):
            happens("opened", _path(file, -1))
        return opened

    def watched_fsync(file):
        number = file if isinstance(file, int) else file.fileno()
        happens("fsync", os.readlink(f"/proc/self/fd/{number}"))
        true_fsync(file)

    sys.addaudithook(audited)
    io.open = builtins.open = watched_open
    os.fsync = watched_fsync


def _writes(mode, flags):
    return bool(set(mode or "") & set("wax+")) or bool(flags & WRITES)


def _path(name, folder):
    if isinstance(name, int):
        return os.readlink(f"/proc/self/fd/{name}")
    path = os.fsdecode(name)
    # Removing a tree names its files by their folder's descriptor.
    if not path.startswith("/") and isinstance(folder, int) and folder >= 0:
        path = f"{os.readlink(f'/proc/self/fd/{folder}')}/{path}"
    return os.path.abspath(path)
