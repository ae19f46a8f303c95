"""A terminal of a given width in place of stderr."""

import fcntl
import os
import pty
import struct
import sys
import termios

END = "<end>"


class Terminal:
    """What is written to stderr, which is a terminal."""

    def __init__(self, monkeypatch, columns):
        self._reader, writer = pty.openpty()
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        monkeypatch.setattr(sys, "stderr", os.fdopen(writer, "w"))

    def read(self):
        """Return what was written since the last call."""
        print(END, end="", file=sys.stderr, flush=True)  # the kernel passes the rest on first
        found = b""
        while not found.endswith(END.encode()):
            found += os.read(self._reader, 1 << 16)
        return found.decode().removesuffix(END)
