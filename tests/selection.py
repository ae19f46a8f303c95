"""Which parameters of a test the quick suite tries."""

import pytest


def mostly_slow(values, reason, *, quick=1):
    """Return the values as parameters, all but the first `quick` of them slow."""
    slow = pytest.mark.slow(reason)
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[slow] * is_slow)
        for value, is_slow in ((value, number >= quick) for number, value in enumerate(values))
    ]
