"""Read the JSON files of runs, exports and configurations: one object, or one per line."""

from pathlib import Path
from typing import Any

from data_prep.files.strict_json import JsonError, json_in
from data_prep.files.whole_file import MOST_BYTES, content_of
from pretrain.config.errors import ConfigError

MOST_BYTES_OF_LINES = 1 << 32  # a line for each of a million steps takes one of them


def read_json_object(file: Path, *, fix: str = "") -> dict[str, Any]:
    """Return the JSON object that a file holds.

    Args:
        file: named in every message.
        fix: what to do if it is damaged.

    Raises:
        ConfigError: it cannot be read, or holds something else; see `json_in`.
    """
    return _object(_content(file), str(file), fix)


def read_json_lines(file: Path, *, fix: str = "") -> list[dict[str, Any]]:
    """Return the objects of the complete lines of a file; none if there is no file.

    The last line is incomplete if the process died while it wrote it.

    Args:
        file: named in every message.
        fix: what to do if it is damaged.

    Raises:
        ConfigError: one is damaged; see `json_in`.
    """
    if not file.is_file():
        return []
    lines = _content(file, most=MOST_BYTES_OF_LINES).split(b"\n")[:-1]
    return [_object(line, f"line {number} of {file}", fix) for number, line in enumerate(lines, 1)]


def _content(file: Path, *, most: int = MOST_BYTES) -> bytes:
    try:
        return content_of(file, most=most)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None


def _object(content: bytes, place: str, fix: str) -> dict[str, Any]:
    try:
        if isinstance(tree := json_in(content), dict):
            return tree
        reason = "not a JSON object"
    except JsonError as error:
        reason = str(error)
    raise ConfigError(f"{place} is damaged: {reason}{fix and f'; {fix}'}")
