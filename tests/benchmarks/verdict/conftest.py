"""Studies of made-up runs, and the modules of the verdict's benchmark."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _modules_of_the_benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "verdict"))


def run_of(arm, seed, losses, *, is_trial=False, **settings):
    from studies import StudyRun

    curve = tuple((100 * (index + 1), loss) for index, loss in enumerate(losses))
    return StudyRun(arm, seed, is_trial, settings, 1e12, curve, "abc")


def study_of(*runs):
    from studies import Study

    shared = {"batch.global_sequences": 10, "data.sequence_length": 100}
    return Study("toy", "text", "words", ("cpu",), ("float32",), {"torch": "2"}, 7.0, shared, runs)


@pytest.fixture
def drawn(monkeypatch):
    """Return a function that returns the panels of the figure that was drawn last."""
    import figures

    saved = []
    monkeypatch.setattr(figures, "_save", lambda figure, file: saved.append(figure))
    return lambda: saved[-1].axes
