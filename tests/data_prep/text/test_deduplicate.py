import random

import numpy as np
import pytest

from data_prep.text import deduplicate
from data_prep.text.deduplicate import hashes_of, repetitions


def places_of_repetitions(texts):
    """Return the same by a set of all texts."""
    seen, places = set(), []
    for place, text in enumerate(texts):
        if text in seen:
            places.append(place)
        seen.add(text)
    return places


@pytest.mark.parametrize("hashes_per_bucket", [1, 100, 10_000])
def test_repetitions_are_those_that_a_set_finds(tmp_path, monkeypatch, hashes_per_bucket):
    monkeypatch.setattr(deduplicate, "HASHES_PER_BUCKET", hashes_per_bucket)
    generator = random.Random(0)
    texts = [b"text %d" % generator.randrange(300) for _ in range(1000)]
    parts = (hashes_of(texts[first : first + 90]) for first in range(0, 1000, 90))
    found = np.concatenate(list(repetitions(parts, 1000, tmp_path / "scratch")))
    assert sorted(found.tolist()) == places_of_repetitions(texts)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_search_leaves_nothing_that_the_next_one_counts(tmp_path):
    for _ in range(2):
        next(repetitions(iter([hashes_of([b"a", b"b"])]), 2, tmp_path / "scratch"))
    found = list(repetitions(iter([hashes_of([b"a", b"b", b"a"])]), 3, tmp_path / "scratch"))
    assert np.concatenate(found).tolist() == [2]
