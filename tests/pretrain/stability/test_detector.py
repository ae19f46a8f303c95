"""Which numbers are an anomaly, and what is decided about it."""

import json
import statistics

import pytest

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import TroubleSettings
from pretrain.stability.detector import (
    Anomaly,
    AnomalyDetector,
    Decision,
    StepNumbers,
    decide,
    excluded_steps,
    pending_rewinds,
)
from pretrain.stability.journal import AnomalyLog

FINE = StepNumbers(1, 5.0, 0, False, False, 1.0)
REWINDS = TroubleSettings(on_not_finite="rewind")


def check_all(detector, losses, first=1):
    return [
        detector.check(FINE._replace(step=first + i, loss=loss)) for i, loss in enumerate(losses)
    ]


def test_a_loss_or_gradient_that_is_not_finite_is_an_anomaly_at_once():
    detector = AnomalyDetector(TroubleSettings())
    assert detector.check(FINE) is None
    found = detector.check(FINE._replace(step=2, not_finite_losses=3))
    assert (found.kind, found.step) == ("not finite", 2) and "3 micro-batches" in found.reason
    found = detector.check(FINE._replace(step=3, not_finite_gradient=True))
    assert found.kind == "not finite" and "gradient" in found.reason


def test_a_spike_is_reported_once_and_against_the_median_of_the_last_hundred():
    detector = AnomalyDetector(TroubleSettings(spike_factor=2.0))
    losses = [8 - 0.03 * step for step in range(150)]
    assert check_all(detector, losses) == [None] * 150
    median = statistics.median(losses[-100:])
    first, second, third, fourth, fifth = check_all(
        detector, [2.01 * median, 2.5 * median, 4.0, 1.9 * median, 2.2 * median], first=151
    )
    assert (first.kind, first.first_step, first.step) == ("spike", 150, 151)
    assert f"{median:.4f}" in first.reason
    assert second is None and third is None and fourth is None  # until it has come back
    assert fifth.step == 155


def test_a_short_history_knows_no_spikes():
    assert check_all(AnomalyDetector(TroubleSettings()), [1.0] * 49 + [100.0]) == [None] * 50
    assert check_all(AnomalyDetector(TroubleSettings()), [1.0] * 50 + [100.0])[-1].kind == "spike"


def test_the_search_for_a_loss_scale_is_no_anomaly_but_a_streak_is():
    detector = AnomalyDetector(TroubleSettings(overflow_streak=20), smallest_scale=1.0)
    scale = 2.0**24
    for step in range(1, 10):  # 2^24 down to 2^15
        scale /= 2
        assert detector.check(FINE._replace(step=step, overflowed=True, loss_scale=scale)) is None
    assert detector.check(FINE._replace(step=10, loss_scale=scale)) is None
    found = [
        detector.check(FINE._replace(step=step, overflowed=True, loss_scale=scale))
        for step in range(11, 31)
    ]
    assert found[:-1] == [None] * 19
    assert (found[-1].kind, found[-1].first_step, found[-1].step) == ("overflow streak", 11, 30)


def test_a_loss_scale_near_its_floor_is_an_anomaly_before_deepspeed_gives_up():
    detector = AnomalyDetector(TroubleSettings(), smallest_scale=1.0)
    found = {
        scale: detector.check(FINE._replace(overflowed=True, loss_scale=scale))
        for scale in (32.0, 16.0)
    }
    assert found[32.0] is None and found[16.0].kind == "overflow streak"
    assert AnomalyDetector(TroubleSettings()).check(FINE._replace(overflowed=True)) is None


def test_the_policy_decides_which_rows_are_left_out():
    spike, bad = Anomaly("spike", 41, 42, ""), Anomaly("not finite", 42, 42, "")
    assert decide(spike, TroubleSettings(), [], 30)[0].action == "record"
    assert decide(bad, TroubleSettings(), [], 30)[0].action == "stop"
    assert list(decide(bad, REWINDS, [], 30)[0].steps) == [42]
    three = TroubleSettings(on_not_finite="rewind", skip_steps=3)
    assert list(decide(bad, three, [], 30)[0].steps) == [40, 41, 42]
    assert list(decide(bad, three, [], 41)[0].steps) == [42]  # the others are in the checkpoint
    streak = Anomaly("overflow streak", 33, 42, "")
    assert list(decide(streak, REWINDS, [], 30)[0].steps) == list(range(33, 43))


def test_too_many_rewinds_to_one_checkpoint_end_in_a_stop():
    rewinds = [Decision("rewind", "not finite", step, step, 30) for step in (42, 43, 44)]
    bad = Anomaly("not finite", 45, 45, "")
    decision, why = decide(bad, REWINDS, rewinds, 30)
    assert decision.action == "stop" and "steps 42, 43, 44" in why
    assert decide(bad, REWINDS, rewinds, 40)[0].action == "rewind"  # a new one, in between
    assert decide(bad, REWINDS, rewinds[1:], 30)[0].action == "rewind"


def test_a_stop_becomes_a_rewind_when_the_run_is_resumed_with_that_policy():
    stop = Decision("stop", "not finite", 42, 42, 30)
    assert pending_rewinds([stop], TroubleSettings(), 30) == []
    (owed,) = pending_rewinds([stop], REWINDS, 30)
    assert owed == Decision("rewind", "not finite", 42, 42, 30)
    assert pending_rewinds([stop, owed], REWINDS, 30) == []
    assert excluded_steps([stop, owed]) == {42}


def test_decisions_survive_a_line_that_a_kill_cut_short(tmp_path):
    folder = AnomalyLog(tmp_path)
    assert folder.decisions() == []
    first, second = (Decision("rewind", "spike", step, step, 5) for step in (7, 9))
    folder.add_decision(first, "because")
    file = tmp_path / "trouble" / "decisions.jsonl"
    with file.open("a") as stream:
        stream.write('{"action": "rew')
    assert folder.decisions() == [first]
    folder.add_decision(second, "again")
    assert folder.decisions() == [first, second]
    file.write_text('{"action": "rewind"}\n')
    with pytest.raises(ConfigError, match="line 1, is not a decision.*fix the line"):
        folder.decisions()


def test_a_recording_is_strict_json_and_never_replaces_another(tmp_path):
    folder = AnomalyLog(tmp_path)
    content = {"losses": [float("nan"), 1.0], "norm": float("-inf")}
    first, second = (folder.write_recording(42, content) for _ in range(2))
    assert (first.name, second.name) == ("step_00000042.json", "step_00000042_2.json")

    def refuse(word):
        raise AssertionError(word)

    read = json.loads(second.read_text(), parse_constant=refuse)
    assert read == {"losses": ["nan", 1.0], "norm": "-inf"}


def test_settings_of_a_rewind_without_one_are_refused():
    with pytest.raises(ConfigError, match=r"trouble.skip_steps is without effect unless"):
        load_settings("tiny_cpu", ["--trouble.skip_steps", "2"])
