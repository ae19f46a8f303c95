"""Which numbers are an anomaly."""

import statistics

from pretrain.config.settings import TroubleSettings
from pretrain.train.stability.detector import AnomalyDetector, StepNumbers

FINE = StepNumbers(1, 5.0, 0, False, False, 1.0)


def check_all(detector, losses, first=1):
    return [detector.check(FINE._replace(step=first + i, loss=x)) for i, x in enumerate(losses)]


def test_a_loss_or_gradient_that_is_not_finite_is_an_anomaly_at_once():
    detector = AnomalyDetector(TroubleSettings())
    assert detector.check(FINE) is None
    found = detector.check(FINE._replace(step=2, not_finite_losses=3))
    assert (found.kind, found.step) == ("not finite", 2) and "3 micro-batches" in found.reason
    found = detector.check(FINE._replace(step=3, not_finite_gradient=True))
    assert found.kind == "not finite" and "gradient" in found.reason


def test_a_spike_is_reported_once_and_against_the_median_of_the_last_hundred():
    detector = AnomalyDetector(TroubleSettings())
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
    detector = AnomalyDetector(TroubleSettings(), smallest_scale=1.0)
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
    assert (found[-1].kind, found[-1].first_step, found[-1].step) == ("streak", 11, 30)


def test_a_loss_scale_near_its_floor_is_an_anomaly_before_deepspeed_gives_up():
    detector = AnomalyDetector(TroubleSettings(), smallest_scale=1.0)
    found = {
        scale: detector.check(FINE._replace(overflowed=True, loss_scale=scale))
        for scale in (32.0, 16.0)
    }
    assert found[32.0] is None and found[16.0].kind == "streak"
    assert AnomalyDetector(TroubleSettings()).check(FINE._replace(overflowed=True)) is None


def test_skipped_steps_in_a_row_are_a_streak_and_no_spike():
    detector = AnomalyDetector(TroubleSettings(on_not_finite="skip"))
    check_all(detector, [5.0] * 60)
    bad = FINE._replace(loss=0.0, not_finite_losses=1)
    kinds = [detector.check(bad._replace(step=step)).kind for step in range(61, 81)]
    assert kinds == ["not finite"] * 19 + ["streak"]
    assert detector.state.losses == [5.0] * 60
    assert detector.check(FINE) is None and detector.state.overflows == 0
