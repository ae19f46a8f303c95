"""What several tests of benchmarks use."""

import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "benchmarks/gpu_session"
MODULES = ("child", "findings", "machine", "parts", "session", "summary", "killed_run")


@pytest.fixture
def programs(monkeypatch):
    """The modules of the session, as its program imports them."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    yield __import__
    for name in MODULES:
        sys.modules.pop(name, None)
