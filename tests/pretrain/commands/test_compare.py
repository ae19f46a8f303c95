"""Comparisons of run folders that the tests write, against numbers worked out by hand."""

import json
import math
import re

import pytest
from PIL import Image

from pretrain.__main__ import main
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.reports.compare.convergence import compare
from pretrain.reports.compare.page import write_report
from pretrain.reports.compare.runs import place_of_loss, read_run
from pretrain.reports.compare.tables import result_table
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.words import amount
from tests.pretrain.run_files import LAUNCH, RESULT

LOSSES = (7.0, 6.0, 5.0, 4.0)


def write_run(
    folder,
    *words,
    recipe="tiny_cpu",
    losses=LOSSES,
    speed=100.0,
    finished=True,
    final_rate=0.0,
    speeds=None,
    waits=None,
    **launch,
):
    """Write a run that evaluated every 10 steps of 256 tokens, at `speed` tokens a second.

    The lines of metrics repeat `speeds`, by default `speed`.
    """
    settings = load_settings(recipe, words)
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(settings.model_dump_json())
    totals = [
        {
            "step": 10 * number,
            "tokens": 2560 * number,
            "training_seconds": 2560 * number / speed,
            "flops": 1e9 * number,
        }
        for number in range(1, len(losses) + 1)
    ]
    evaluations = [{**row, "loss": loss} for row, loss in zip(totals, losses, strict=True)]
    measured = [(speeds or [speed])[n % len(speeds or [speed])] for n in range(len(losses))]
    metrics = [
        {
            **row,
            "training_seconds": sum(2560 / one for one in measured[: number + 1]),
            "learning_rate": 1e-3,
            "theta": 0.8,
            "keep_rates": [1.0, 0.7],
            "tokens_per_second": measured[number],
            "processor_wait_share": waits,
        }
        for number, row in enumerate(evaluations)
    ]
    for name, rows in (
        ("evals.jsonl", evaluations),
        ("metrics.jsonl", metrics),
        ("launches.jsonl", [{**LAUNCH, **launch}]),
    ):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        result = {**RESULT, "final_learning_rate": final_rate}
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def runs(*folders):
    return [read_run(folder) for folder in folders]


def write(comparison, folder):
    write_report(comparison, ReportFolder(folder, "a comparison", "--report"))
    return (folder / "index.html").read_text()


def row_of(table, name):
    """Return the row whose first cell this is."""
    (row,) = [row for row in table.rows if next(iter(row.values())) == name]
    return row


@pytest.fixture
def baseline(tmp_path):
    return write_run(tmp_path / "baseline", "--name", "baseline")


@pytest.mark.parametrize(
    ("losses", "target", "place"),
    [
        (LOSSES, 5.5, 2.5),
        (LOSSES, 6.0, 2),
        (LOSSES, 7.5, 1),  # below it from the first evaluation on
        (LOSSES, 3.9, None),
        ((7.0, 5.0, 6.0, 4.0), 5.5, 1.75),  # the first crossing counts
        ((7.0, math.nan, 4.0), 5.5, 3),  # nothing is interpolated from what diverged
    ],
)
def test_a_target_between_two_evaluations_is_interpolated(losses, target, place):
    assert place_of_loss(enumerate(losses, 1), target) == place


def test_runs_that_differ_in_the_seed_form_one_arm_with_median_and_spread(baseline, tmp_path):
    folders = [
        write_run(
            tmp_path / f"seed{seed}",
            *("--model.norm", "post", "--seed", str(seed), "--name", "arm"),
            losses=(5.0, end),
        )
        for seed, end in enumerate((3.0, 3.2, 3.8))
    ]
    comparison = compare(runs(baseline, *folders))
    base, arm = comparison.arms
    assert len(base.runs) == 1 and len(arm.runs) == 3
    # crossings of 4.0: 10 + 10 / 2, 10 + 10 / 1.8, 10 + 10 / 1.2
    assert comparison.reached(arm, "step") == pytest.approx(10 + 10 / 1.8)
    row = row_of(result_table(comparison), "arm")
    assert row["steps to target"] == "16\n39%"
    assert (row["seeds"], row["loss at end"]) == ("3", "3.200\n3.000 to 3.800")
    assert "one seed: baseline" in comparison.notes


def test_runs_of_equal_hours_have_equal_budgets_whatever_they_saw(baseline, tmp_path):
    one = write_run(tmp_path / "one", "--hours", "2")
    more = write_run(tmp_path / "more", "--hours", "2", "--model.norm", "post", losses=(7, 6, 5))
    longer = write_run(tmp_path / "longer", "--hours", "3", "--model.norm", "post")
    for others, doubtful in (((one, more), False), ((one, longer), True), ((baseline, one), True)):
        notes = compare(runs(*others)).notes
        assert any("different budgets" in note for note in notes) is doubtful


@pytest.mark.parametrize(
    ("other", "note"),
    [
        ({"finished": False}, "not finished: "),
        ({"waits": 0.4}, "seconds not comparable: 1 run under load (40%)"),
        ({"final_rate": 5e-4}, "learning rate not annealed: 1 run (up to 50% of the peak)"),
        ({"device": "another"}, "seconds not comparable: different device"),
        ({"world_size": 2, "threads": 2}, "seconds not comparable: different ranks, threads"),
        ({"versions": {"torch": "2.12"}}, "different launches: versions.torch"),
        ({"training_data": "else"}, "different launches: training data"),
        ({"manifest": "1" * 64}, "different launches: manifest"),
        ({"variables": {"MKL_CBWR": "AVX2"}}, "different launches: variables.MKL_CBWR"),
        ({"precision": "float32"}, "different launches: precision"),
        ({"commit": "def"}, "different launches: code"),
        ({"changed_settings": {"steps": [9, 7]}}, "settings changed by a resume: steps"),
        ({"losses": (7.0, 4.0)}, "different budgets: tokens"),
        ({"losses": (7.0, 6.0, math.nan, 4.0)}, "diverged: "),
        ({"words": ("--initial_weights", "runs/before")}, "different budgets: initial weights"),
        ({"words": ("--evaluation.every_steps", "5")}, "different evaluation intervals: "),
    ],
)
def test_what_makes_a_comparison_doubtful_is_said(baseline, tmp_path, other, note):
    words = ("--model.norm", "post", *other.get("words", ()))
    other = {name: value for name, value in other.items() if name != "words"}
    folder = write_run(tmp_path / "other", *words, **other)
    same = write_run(tmp_path / "same", "--model.norm", "post", "--seed", "1")
    assert any(note in found for found in compare(runs(baseline, folder)).notes)
    assert not any(note in found for found in compare(runs(baseline, same)).notes)


def test_a_run_that_changed_its_device_half_way_is_said(baseline, tmp_path):
    other = write_run(tmp_path / "other", "--model.norm", "post")
    launch = json.loads((other / "launches.jsonl").read_text())
    launches = [{**launch, "device": "another"}, launch]
    (other / "launches.jsonl").write_text("".join(json.dumps(one) + "\n" for one in launches))
    assert any("different device" in note for note in compare(runs(baseline, other)).notes)


DETECTION = ("--objective", "replaced_token_detection")


@pytest.mark.parametrize(
    ("words", "launch", "what"),
    [
        ((), {"held_out": "else"}, "held-out sequences or masks"),
        ((), {"held_out": "else", "tokenizer": "b"}, "tokenizers"),
        (DETECTION, {}, "objectives"),
    ],
)
def test_losses_of_other_things_are_not_compared_but_scores_are(tmp_path, words, launch, what):
    first = write_run(tmp_path / "first", tokenizer="a")
    other = write_run(tmp_path / "other", *words, **{"tokenizer": "a", **launch})
    with pytest.raises(ConfigError, match=f"{what}: their losses per token cannot be c") as caught:
        compare(runs(first, other))
    assert str(caught.value).endswith(f"finetune table {first} {other}")


def test_runs_of_replaced_token_detection_have_no_plateau_of_words(tmp_path):
    first, second = (
        write_run(
            tmp_path / name,
            *(*DETECTION, "--model.norm", norm),
            losses=(28.0, 25.0, 24.0),
            frequency_entropy=6.5,
        )
        for name, norm in (("a", "pre"), ("b", "post"))
    )
    comparison = compare(runs(first, second))
    assert comparison.entropy is None and comparison.target == 24.0
    assert not any("plateau" in note for note in comparison.notes)
    (note,) = [note for note in comparison.notes if "generator" in note]
    assert note.endswith(f"finetune table {first} {second}")


def test_what_is_no_comparison_is_refused(baseline, tmp_path):
    with pytest.raises(ConfigError, match="at least two runs"):
        compare(runs(baseline))
    with pytest.raises(ConfigError, match="is named twice"):
        compare(runs(baseline, baseline))
    with pytest.raises(ConfigError, match="is not a run folder"):
        read_run(tmp_path)
    empty = write_run(tmp_path / "empty", losses=())
    with pytest.raises(ConfigError, match="has no evaluation yet"):
        read_run(empty)
    other = write_run(tmp_path / "other")
    with pytest.raises(ConfigError, match="--target 'low' is neither a finite number nor auto"):
        compare(runs(baseline, other), "low")
    with pytest.raises(ConfigError, match="--target 'nan' is neither a finite number nor auto"):
        compare(runs(baseline, other), "nan")


def test_runs_without_a_finite_loss_or_damaged_are_refused(baseline, tmp_path):
    ended = write_run(tmp_path / "ended", losses=(7.0, math.nan))
    with pytest.raises(ConfigError, match="every arm diverged; give tupelo compare a --target"):
        compare(runs(ended, baseline))
    assert compare(runs(ended, baseline), "6.5").target == 6.5
    with pytest.raises(ConfigError, match="has no finite held-out loss"):
        read_run(write_run(tmp_path / "lost", losses=(math.nan, math.inf)))
    (ended / "run.json").write_text("{")
    with pytest.raises(ConfigError, match=r"run\.json is damaged: .*; restore it from a copy"):
        read_run(ended)


def test_amounts_read_like_a_person_would_write_them():
    assert amount(None, "step") == "not reached"
    assert amount(12345.6, "step") == "12,346"
    assert amount(1234567, "tokens") == "1.23 M"
    assert amount(4.5e15, "flops") == "4.50 P"
    assert amount(5.25, "training_seconds") == "5.2 s"
    assert amount(151, "training_seconds") == "2 min 31 s"
    assert amount(3 * 3600 + 300, "training_seconds") == "3 h 05 min"


def test_the_command_prints_a_table_and_writes_a_page_that_needs_nothing_else(
    baseline, tmp_path, capsys
):
    dropping = ("--layer_drop.schedule", "progressive", "--name", "dropping")
    others = [
        write_run(tmp_path / f"d{seed}", *dropping, "--seed", str(seed), losses=(5.0, 3.0))
        for seed in range(2)
    ]
    report = tmp_path / "report"
    main(
        ["compare", str(baseline), *map(str, others), "--report", str(report), "--note", "a trial"]
    )
    printed = capsys.readouterr().out
    assert "2 arms" in printed and "38%" in printed
    notes = [line for line in printed.splitlines() if line.startswith("note: ")]
    assert len(notes) > 1 and notes[0] == "note: a trial"

    page = (report / "index.html").read_text()
    assert not re.search(r"(src|href|srcset)\s*=\s*[\"'](?!data:image/svg)", page)
    assert "@import" not in page
    assert page.index("3 runs of 2 arms") < page.index("<table") < page.index("<img")
    assert "Trained on some text, on CPU x 2" in page
    assert "Every run" in page and all(str(folder) in page for folder in others)
    assert "layer_drop.schedule" in page
    pictures = sorted(report.glob("*.png"))
    assert page.count("<img ") == len(pictures) == 3
    assert {file.stem for file in report.glob("*.svg")} == {file.stem for file in pictures}
    with Image.open(pictures[0]) as image:
        assert image.width > 600
    assert {file.suffix for file in report.glob("table.*")} == {".csv", ".md", ".tex"}


def test_a_run_from_before_a_setting_repeats_one_with_its_default(tmp_path):
    """Two seeds of an arm, of which the first was trained by an earlier version."""
    words = ("--batch.micro_sequences", "auto")
    old = write_run(tmp_path / "a_seed0", *words)
    new = write_run(tmp_path / "a_seed1", *words, "--seed", "1")
    stored = json.loads((old / "run.json").read_text())
    del stored["model"]["output_bias"], stored["optimizer"]["position_rate"], stored["objective"]
    stored["batch"]["micro_sequences"] = None
    (old / "run.json").write_text(json.dumps(stored))
    before, now = (read_run(folder).settings for folder in (old, new))
    assert {name for name in now if before.get(name) != now[name]} == {"seed"}
    assert before.keys() == now.keys()
