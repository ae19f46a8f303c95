"""Read the JSON files of runs, exports and configurations: one object, or one per line."""

from pathlib import Path
from typing import Any

from pydantic_core import from_json

from pretrain.config.errors import ConfigError


def read_json_object(file: Path, *, fix: str = "") -> dict[str, Any]:
    """Return the JSON object that a file holds; `fix` is what to do if it is damaged.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    return _object(_content(file), str(file), fix)


def read_json_lines(file: Path, *, fix: str = "") -> list[dict[str, Any]]:
    """Return the objects of the complete lines of a file; none if there is no file.

    The last line is incomplete if the process died while it wrote it. `fix` is what to do if
    one before it is damaged.

    Raises:
        ConfigError: one is damaged.
    """
    if not file.is_file():
        return []
    lines = _content(file).split(b"\n")[:-1]
    return [_object(line, f"line {number} of {file}", fix) for number, line in enumerate(lines, 1)]


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None


def _object(content: bytes, place: str, fix: str) -> dict[str, Any]:
    try:
        if isinstance(tree := from_json(content), dict):
            return tree
        reason = "not a JSON object"
    except ValueError as error:
        reason = str(error)
    raise ConfigError(f"{place} is damaged: {reason}{fix and f'; {fix}'}")
