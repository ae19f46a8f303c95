"""What a user sees of training: a bar in a terminal, lines in a log file."""

import pytest

from data_prep.files import progress_bar
from pretrain.config.recipe import load_settings
from pretrain.train.recording.display import StepDisplay
from tests.terminal import Terminal

METRICS = {"loss": 10.12345, "learning_rate": 0.00012, "tokens_per_second": 1234567.8}


@pytest.mark.parametrize("name", ["pld_base_baseline", "n" * 60])
def test_loss_and_speed_are_visible_at_80_columns(name, monkeypatch):
    terminal = Terminal(monkeypatch, 80)
    settings = load_settings("pld_base", ["--name", name])
    with StepDisplay(settings, 123_455, shown=True) as display:
        display.advance()
        display.show_metrics(METRICS)
        frame = terminal.read().replace("\n", "\r").rstrip("\r").split("\r")[-1]
        assert len(frame) <= 80
        assert "| 123,456/200,000, loss 10.123, 1,234,568 tokens/s" in frame


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress_bar.time, "strftime", lambda _: "DATE TIME")
    return now


def train(settings, first, steps, clock, *, shown=True):
    """Take steps of 10 seconds; the loss is the number of the step."""
    with StepDisplay(settings, first, shown=shown) as display:
        for step in range(first + 1, first + steps + 1):
            clock[0] += 10
            display.advance()
            if step % settings.log_every_steps == 0:
                now = {"step": step, "loss": step, "learning_rate": 1e-4}
                display.show_metrics({**now, "tokens_per_second": 25.6})
            if step % settings.evaluation.every_steps == 0:
                display.show_evaluation(step, 4.0)


def test_a_log_file_gets_lines_with_loss_rate_speed_and_time_left(clock, capsys):
    """A step of 10 seconds: at the first metrics, every half minute, evaluations, the end."""
    train(load_settings("tiny_cpu"), 0, 20, clock)
    printed = capsys.readouterr()

    def line(step, loss, left):
        return (
            f"DATE TIME tiny_cpu: step {step}/20 ({step * 5}%), loss {loss}.0000"
            f"{f' at {loss}' if loss < step else ''}, learning rate 1.00e-04, 26 tokens/s"
            f", {left} left"
        )

    assert printed.err.splitlines() == [
        "DATE TIME tiny_cpu: starts",
        "DATE TIME tiny_cpu: step 3/20 (15%), 02:50 left",
        line(5, 5, "02:30"),
        line(8, 5, "02:00"),
        line(10, 10, "01:40"),
        line(13, 10, "01:10"),
        line(16, 15, "00:40"),
        line(19, 15, "00:10"),
        line(20, 20, "").removesuffix(",  left"),
    ]
    assert printed.out.splitlines() == [
        "step      10: held-out loss 4.0000",
        "step      20: held-out loss 4.0000",
    ]


def test_a_resumed_run_says_from_where(clock, capsys):
    train(load_settings("tiny_cpu"), 10, 1, clock)
    first, *_ = capsys.readouterr().err.splitlines()
    assert first == "DATE TIME tiny_cpu: continues after step 10/20 (50%)"


def test_other_ranks_print_nothing(clock, capsys):
    train(load_settings("tiny_cpu"), 0, 9, clock, shown=False)
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""
