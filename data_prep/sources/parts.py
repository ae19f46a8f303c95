"""Collect the lines of a document, and hand it out in parts if it is too long."""

_LINE_FEED = ord("\n")


class DocumentParts:
    """The lines of one document after the other."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._lines: list[bytes] = []
        self._size = self._first = 0

    def add(self, number: int, line: bytes) -> tuple[bytes, int] | None:
        """Add a line; return content and first line of the part that ends before it, if one does.

        The line that follows a part has words, so that a part is never the last one.
        """
        part = None
        if line.isspace():
            # Of these only the line feeds count, for the numbers of the lines that follow.
            if not self._lines or self._size >= self._longest:
                return None
            line = b"\n" if line[-1] == _LINE_FEED else b" "
        elif self._lines and self._size + len(line) > self._longest:
            part = self.end()
        if not self._lines:
            self._first = number
        self._lines.append(line)
        self._size += len(line)
        return part

    def end(self) -> tuple[bytes, int] | None:
        """Return content and first line of what is left of the document, and begin another."""
        if not self._lines:
            return None
        part = b"".join(self._lines), self._first
        self._lines, self._size = [], 0
        return part
