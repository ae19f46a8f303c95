"""Sentences on launches that the tests make up, spelt out by hand."""

import pytest

from pretrain.compare.launches import (
    history_notes,
    launch_differences,
    machine_differences,
)

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


def test_equal_launches_are_passed_over_in_silence():
    assert launch_differences({"a": [LAUNCH, changed(resumed_from=20)], "b": [LAUNCH]}) == []


def test_a_launch_from_before_something_was_recorded_does_not_differ_in_it():
    assert launch_differences({"a": [LAUNCH], "b": [OLD]}) == []
    (sentence,) = machine_differences({"a": [LAUNCH], "b": [changed(threads=1)], "c": [OLD]})
    assert sentence.endswith("a 2; b 1; c not recorded")


def test_other_code_is_said_with_the_number_of_changes():
    stat = " a.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)"
    dirty = changed(commit="def456-dirty", uncommitted=stat)
    assert launch_differences({"bert_a": [LAUNCH], "tupe_r": [dirty], "pld": [LAUNCH]}) == [
        "the runs have different commits of the code: bert_a and pld abc123; tupe_r def456-dirty "
        "(1 file changed, 1 insertion(+), 1 deletion(-))"
    ]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"versions": {"python": "3.11.7", "torch": "2.12.0"}}, "torch: a 2.13.0; b 2.12.0"),
        ({"variables": {}}, "values of OMP_NUM_THREADS: a 2; b unset"),
        ({"manifest": "9" * 64}, "manifests of equal sequences: a 888888888888; b 999999999999"),
        ({"precision": "float16"}, "precisions: a bfloat16; b float16"),
    ],
)
def test_each_difference_is_a_sentence_of_its_own(other, sentence):
    (found,) = launch_differences({"a": [LAUNCH], "b": [changed(**other)]})
    assert found.endswith(sentence)


def test_other_rows_are_not_said_twice_because_their_manifest_differs_too():
    other = changed(manifest="9" * 64, training_data="6" * 64)
    (sentence,) = launch_differences({"a": [LAUNCH], "b": [other]})
    assert sentence == "the runs have different training data: a 777777777777; b 666666666666"


def test_a_run_that_changed_between_its_launches_says_so_in_order():
    moved = changed(device="CPU x 8", resumed_from=20)
    (sentence,) = machine_differences({"a": [LAUNCH, moved]})
    assert sentence.endswith("a CPU x 2, then CPU x 8")


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"hosts": 2}, "the runs have different numbers of machines: a 1; b 2"),
        ({"world_size": 8}, "the runs have different numbers of ranks: a 1; b 8"),
    ],
)
def test_another_machine_changes_the_speed_and_is_said_apart(other, sentence):
    launches = {"a": [LAUNCH], "b": [changed(**other)]}
    assert machine_differences(launches) == [sentence]
    assert launch_differences(launches) == []


def test_a_run_that_was_never_stopped_has_no_history():
    assert history_notes("runs/a", [LAUNCH]) == []
    assert history_notes("runs/a", [OLD]) == []


def test_resuming_on_other_ranks_and_settings_is_history():
    first = changed(resumed_from=20)
    moved = changed(
        resumed_from=1500,
        world_size=4,
        zero_stage=2,
        changed_settings={
            "checkpoint.keep_last": [None, 2],
            "world_size": [1, 4],
            "ds_config.zero_optimization.stage": [0, 2],
        },
    )
    assert history_notes("runs/a", [LAUNCH, first, moved]) == [
        "runs/a was resumed after steps 20, 1,500",
        "runs/a changed its number of ranks (1 to 4), its ZeRO stage (0 to 2), "
        "checkpoint.keep_last (None to 2) after step 1,500",
    ]
