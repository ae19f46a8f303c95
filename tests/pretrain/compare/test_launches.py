"""Which properties of launches differ."""

import pytest

from pretrain.compare.caveats import differing, properties

LAUNCH = {
    "commit": "abc123",
    "uncommitted": "",
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
    "device": "CPU x 2",
    "world_size": 1,
    "hosts": 1,
    "threads": 2,
    "precision": "bfloat16",
    "zero_stage": 0,
    "training_data": "7" * 64,
    "manifest": "8" * 64,
    "variables": {"OMP_NUM_THREADS": "2"},
    "resumed_from": None,
    "changed_settings": {},
}
# What a launch said before the rest was recorded.
OLD = {
    name: LAUNCH[name] for name in ("commit", "versions", "device", "world_size", "training_data")
}


def changed(**values):
    return {**LAUNCH, **values}


def test_equal_launches_and_older_ones_that_recorded_less_do_not_differ():
    assert differing([LAUNCH, changed(resumed_from=20), LAUNCH, OLD]) == []


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"versions": {"python": "3.11.7", "torch": "2.12.0"}}, ["versions.torch"]),
        ({"variables": {}}, ["variables.OMP_NUM_THREADS"]),
        ({"precision": "float16", "device": "CPU x 8"}, ["device", "precision"]),
        ({"hosts": 2, "world_size": 8}, ["ranks", "machines"]),
        ({"uncommitted": " a.py | 2 +-\n 1 file changed"}, ["code"]),
        ({"manifest": "9" * 64}, ["manifest"]),
        ({"manifest": "9" * 64, "training_data": "6" * 64}, ["training data"]),
    ],
)
def test_each_property_that_differs_is_named_once(other, names):
    assert differing([LAUNCH, changed(**other)]) == names


def test_what_a_launch_recorded_is_in_words():
    stat = " a.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)"
    found = properties(changed(uncommitted=stat))
    assert found["code"] == "abc123 (1 file changed, 1 insertion(+), 1 deletion(-))"
    assert found["manifest"] == "888888888888" and found["ranks"] == "1"
