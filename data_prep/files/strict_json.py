"""Read JSON of unknown origin strictly.

Python's reader keeps the last of two equal keys, and pydantic's refuses what Python's returns or
fails at: unpaired surrogates, which cannot be encoded, and hundreds of levels.
"""

import json
from typing import Any

from pydantic_core import from_json

from data_prep.files.quoting import quoted


class JsonError(ValueError):
    """A text is not readable JSON; the message does not name the file."""


def json_in(content: bytes) -> Any:
    """Return the value of a JSON text.

    NaN and Infinity are accepted, as Python writes them: a loss that diverged is one.

    Raises:
        JsonError: it is not UTF-8 or not JSON, a key is repeated, a string holds an unpaired
            surrogate, a number has thousands of digits, or it is nested too deeply.
    """
    try:
        from_json(content)
        return json.loads(content, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise JsonError(str(error)) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise JsonError(f"the key {quoted(repeated)} is repeated in one object")
    return found
