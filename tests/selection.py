"""Which parameters of a test the quick suite tries."""

import pytest


def mostly_slow(values, reason):
    """Return the values as parameters, all but the first of them slow."""
    first, *others = (value if isinstance(value, tuple) else (value,) for value in values)
    slow = pytest.mark.slow(reason)
    return [pytest.param(*first), *(pytest.param(*other, marks=slow) for other in others)]
