"""Read JSON of unknown origin strictly.

Python's reader keeps the last of two equal keys, raises RecursionError at deep nesting, and returns
unpaired surrogates, which cannot be encoded. Here each of these is a `JsonError`.
"""

import json
from typing import Any

from data_prep.files.quoting import is_unicode, quoted

MOST_LEVELS = 64  # our own files have seven
_TOO_DEEP = f"nested more than {MOST_LEVELS} levels deep"


class JsonError(ValueError):
    """A text is not readable JSON; the message does not name the file."""


def json_in(content: bytes) -> Any:
    """Return the value of a JSON text.

    NaN and Infinity are accepted, as Python writes them: a loss that diverged is one.

    Raises:
        JsonError: it is not UTF-8 or not JSON, a key is repeated, a string holds an unpaired
            surrogate, a number has thousands of digits, or nesting exceeds 64 levels.
    """
    try:
        tree = json.loads(content.decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not valid UTF-8") from None
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    except ValueError as error:
        raise JsonError(str(error)) from None
    _check(tree)
    return tree


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise JsonError(f"the key {quoted(repeated)} is repeated in one object")
    return found


def _check(tree: Any) -> None:
    """Refuse unpaired surrogates and deep nesting, without recursion."""
    level = [tree]
    for _ in range(MOST_LEVELS):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += [*value, *value.values()]
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str) and not is_unicode(value):
                raise JsonError(f"{quoted(value)} holds an unpaired surrogate")
        if not inner:
            return
        level = inner
    raise JsonError(_TOO_DEEP)
