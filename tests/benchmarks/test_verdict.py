"""The verdict's statistics against SciPy, its records against the runs, its page against both."""

import math
import runpy
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pretrain.checkpoint.changes import flat_settings
from pretrain.compare.run_files import DECISIONS
from pretrain.compare.runs import Run
from pretrain.config.recipe import load_settings
from pretrain.launching.sweeps.spec import read_spec

ROOT = Path(__file__).parents[2]
SWEEPS = sorted((ROOT / "benchmarks" / "verdict" / "sweeps").rglob("*.toml"))


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


def test_the_interval_of_paired_seeds_is_that_of_scipy():
    from intervals import paired_mean

    ours, theirs = {1: 4.0, 2: 4.2, 3: 4.1, 9: 0.0}, {1: 4.3, 2: 4.3, 3: 4.2, 8: 9.0}
    found = paired_mean(ours, theirs)
    test = stats.ttest_rel([4.0, 4.2, 4.1], [4.3, 4.3, 4.2])
    interval = test.confidence_interval(0.95)
    assert found.num_pairs == 3
    assert found.p_value == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert paired_mean({1: 1.0}, {2: 1.0}) is None
    assert paired_mean({1: 1.0}, {1: 2.0}).p_value == 1  # one pair has no interval
    assert paired_mean({1: math.inf, 2: 1.0}, {1: 1.0, 2: math.inf}) is None


def test_equal_differences_have_an_interval_of_no_width():
    from intervals import paired_mean

    found = paired_mean({1: 1.0, 2: 2.0}, {1: 0.5, 2: 1.5})
    assert (found.low, found.high, found.p_value) == (0.5, 0.5, 0.0)


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_every_sweep_of_the_verdict_names_arms_that_exist(file):
    spec = read_spec(file)
    for arm in spec.arms:
        tried = spec.tuning.points[0] if spec.tuning else {}
        words = {**spec.settings, **tried, **arm.words}
        options = [word for name, value in words.items() for word in (f"--{name}", value)]
        settings = load_settings(arm.recipe, options)
        assert settings.data.sequence_length == 64 and settings.steps <= 12_000
        assert spec.tuning is None or len(spec.tuning.points) in (2, 6, 8)


@pytest.mark.parametrize(
    ("recipe", "record", "arm"),
    [
        ("tupe_r_tuned", "post_norm_seeds", "tupe_r_post"),
        ("tupe_r_drop", "layer_drop/layer_drop_pays", "paper_10"),
    ],
)
def test_a_recipe_of_the_verdict_trains_what_its_runs_trained(recipe, record, arm):
    from studies import read_study

    study = read_study(ROOT / "results" / f"{record}.json")
    offered = flat_settings(load_settings(recipe))
    runs = study.of_arm(arm).values()
    assert len(runs) > 2
    for run in runs:
        trained = {**study.shared, **run.settings}
        differing = {name for name, value in trained.items() if offered[name] != value}
        assert differing == {"evaluation.rows"}


def test_p_values_are_corrected_as_by_hand():
    from intervals import holm

    # Sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2 (not less than the one before), 0.5 x 1.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_an_answer_needs_a_p_value_that_is_corrected_for_the_other_questions():
    from tables import Question, answers

    ends = {"base": [5.0, 5.1, 5.2], "better": [4.9, 5.01, 5.13], "equal": [5.1, 5.0, 5.2]}
    study = study_of(
        *(run_of(arm, seed, [one]) for arm, found in ends.items() for seed, one in enumerate(found))
    )
    p_value = stats.ttest_rel(ends["better"], ends["base"]).pvalue
    assert p_value < 0.05 < 8 * p_value
    question = Question("Better?", "better", "base")
    assert f"| {p_value:.3f} | lower |" in answers(study, [question])
    others = [Question("Equal?", "equal", "base")] * 7
    table = answers(study, [question, *others])
    assert f"| {8 * p_value:.3f} | cannot tell |" in table and "| lower |" not in table


def test_a_question_may_compare_differences_of_arms():
    from tables import Question, answers

    ends = {
        "slow": [4.5, 4.6, 4.4],
        "slow_base": [4.8, 4.9, 4.6],
        "fast": [4.2, 4.1, 4.2],
        "fast_base": [4.3, 4.2, 4.4],
    }
    study = study_of(
        *(run_of(arm, seed, [one]) for arm, found in ends.items() for seed, one in enumerate(found))
    )
    lead_slow = np.subtract(ends["slow"], ends["slow_base"])
    lead_fast = np.subtract(ends["fast"], ends["fast_base"])
    mean = (lead_slow - lead_fast).mean()
    p_value = stats.ttest_rel(lead_slow, lead_fast).pvalue
    table = answers(study, [Question("Larger?", "slow - slow_base", "fast - fast_base")])
    assert f"| (`slow` - `slow_base`) - (`fast` - `fast_base`) | {mean:+.3f} (" in table
    assert f"| {p_value:.3f} |" in table


def test_a_question_may_compare_means_of_arms():
    from tables import Question, answers

    ends = {"a": [4.5, 4.6, 4.4], "b": [4.8, 4.9, 4.6], "c": [4.2, 4.1, 4.2], "d": [4.3, 4.2]}
    study = study_of(
        *(run_of(arm, seed, [one]) for arm, found in ends.items() for seed, one in enumerate(found))
    )
    ours, theirs = np.add(ends["a"], ends["b"]) / 2, np.add(ends["c"][:2], ends["d"]) / 2
    test = stats.ttest_rel(ours[:2], theirs)
    table = answers(study, [Question("Higher?", "a, b", "c, d")])
    words = "mean of `a`, `b` - mean of `c`, `d`"
    assert f"| {words} | {(ours[:2] - theirs).mean():+.3f} (" in table
    assert f"| {test.pvalue:.3f} |" in table


def test_a_record_is_read_as_it_was_written(tmp_path):
    from studies import read_study, write_study

    study = study_of(run_of("a", 1, [6.0, 5.0], rate=1), run_of("a", 4, [6.5], is_trial=True))
    write_study(study, tmp_path / "toy.json")
    assert read_study(tmp_path / "toy.json") == study
    assert len((tmp_path / "toy.json").read_text().splitlines()) < 40


def test_studies_of_the_same_words_are_joined():
    from studies import join

    first = study_of(run_of("a", 1, [5.0]))
    second = replace(study_of(run_of("b", 1, [4.0], norm="post")), name="more")
    second = replace(second, precision=("bfloat16",))
    second = replace(second, shared={**second.shared, "batch.global_sequences": 20})
    joined = join([first, second])
    assert joined.name == "toy+more" and joined.arms == ["a", "b"]
    assert joined.shared == {"data.sequence_length": 100}
    assert joined.device == ("cpu",) and joined.precision == ("float32", "bfloat16")
    assert [run.settings for run in joined.runs] == [
        {"batch.global_sequences": 10},
        {"batch.global_sequences": 20, "norm": "post"},
    ]
    with pytest.raises(SystemExit, match=r"toy\+more were evaluated on different words"):
        join([first, replace(second, held_out="others")])
    with pytest.raises(SystemExit, match="two runs of a with seed 1"):
        join([first, first])
    with pytest.raises(SystemExit, match="runs of a in .* have different settings"):
        join([study_of(run_of("a", 1, [5.0], norm="pre")), study_of(run_of("a", 2, [5.0], norm=0))])
    with pytest.raises(SystemExit, match="batches of different size"):
        assert joined.tokens_per_step


def test_a_run_that_an_anomaly_stopped_is_collected_and_ends_at_infinity(tmp_path):
    from studies import condense

    main = runpy.run_path(str(ROOT / "benchmarks" / "verdict" / "__main__.py"))
    for name, file, text in (
        ("a-seed1", "result.json", "{}"),
        ("a-seed2", DECISIONS, '{"action": "stop"}\n'),
        ("a-seed3", "evals.jsonl", ""),  # it has not finished
    ):
        folder = tmp_path / name
        (folder / file).parent.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        (folder / file).write_text(text)
    ended = main["ended_runs"](tmp_path)
    assert [folder.name for folder in ended] == ["a-seed1", "a-seed2"]

    launch = {"held_out": "words", "source": "text", "device": "cpu", "precision": "float32"}
    launch |= {"versions": {}, "frequency_entropy": 7.0, "commit": "abc"}
    evaluation = {"step": 100, "loss": 5.0, "flops": 1.0, "training_seconds": 1.0}
    run = Run(tmp_path, {"name": "a", "seed": 2}, [launch], [], [evaluation], None, True)
    (stopped,) = condense("toy", [run]).runs
    assert stopped.loss == math.inf and stopped.steps == 100


def test_a_question_about_nothing_is_refused():
    from tables import Question, answers, ends

    study = study_of(run_of("a", 1, [5.0]), run_of("b", 2, [5.0]))
    with pytest.raises(SystemExit, match="toy has no runs of c; its arms: a, b"):
        answers(study, [Question("Lower?", "a", "c")])
    with pytest.raises(SystemExit, match="a and b have no seed in common"):
        answers(study, [Question("Lower?", "a", "b")])
    with pytest.raises(SystemExit, match="no runs of c"):
        ends(study, "c")


def test_the_number_of_pairs_stands_where_runs_have_no_partner():
    from tables import ends

    study = study_of(
        *(run_of("base", seed, [5.0 + seed / 10]) for seed in (1, 2, 3)),
        *(run_of("other", seed, [5.0]) for seed in (2, 3, 4)),
    )
    assert "; 2 pairs) |" in ends(study, "base")


def test_the_steps_from_the_plateau_to_a_target_are_interpolated_and_averaged_as_ratios():
    from tables import speed

    # The plateau ends at 6.7: half way between 100 and 200 steps; the target 6.0 at 300 or 500.
    slow = [6.9, 6.5, 6.4, 6.2, 6.0]
    study = study_of(
        *(run_of("slow", seed, slow) for seed in (1, 2)),
        run_of("fast", 1, [6.9, 6.5, 6.0, 5.9]),
        run_of("fast", 2, [6.9, 6.5, 6.4, 6.0]),
        run_of("never", 1, [6.9, 6.8]),
        run_of("elsewhere", 3, slow),
    )
    logs = [math.log(150 / 350), math.log(250 / 350)]
    reach = stats.t.ppf(0.975, 1) * stats.sem(logs)
    mean, low, high = (math.exp(statistics.fmean(logs) + one * reach) for one in (0, -1, 1))
    table = speed(study, "slow", [6.0])
    assert f"| `fast` | {mean:.0%} ({low:.0%} - {high:.0%}) |" in table
    assert "| `never` | not reached |" in table and "| `elsewhere` | - |" in table
    assert "| `fast` | not reached by the baseline |" in speed(study, "never", [6.0])
    with pytest.raises(SystemExit, match="reaches 6.8 before it has left the plateau"):
        speed(study, "slow", [6.8])


def test_scores_of_minimal_pairs_are_means_over_paradigms_and_compared_by_seed(tmp_path):
    from tables import scores

    main = runpy.run_path(str(ROOT / "benchmarks" / "verdict" / "__main__.py"))
    file = tmp_path / "paradigms.csv"
    file.write_text("run,accuracy\na-seed1,0.5\na-seed1,0.75\na-seed2,1\n")
    assert main["scores_of_pairs"](f"BLiMP={file}") == {
        "a-seed1": {"BLiMP": 62.5},
        "a-seed2": {"BLiMP": 100.0},
    }
    with pytest.raises(SystemExit, match="there is no such file"):
        main["scores_of_pairs"]("BLiMP=nowhere.csv")
    ours, theirs = [61.0, 64.0, 62.0], [58.0, 60.0, 61.0]
    study = study_of(
        *(scored(run_of("base", seed, [5.0]), one) for seed, one in enumerate(theirs)),
        *(scored(run_of("better", seed, [5.0]), one) for seed, one in enumerate(ours)),
        run_of("unknown", 0, [5.0]),
    )
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    table = scores(study, "base")
    assert "| `base` | 59.7 |" in table and "| `unknown` | - |" in table
    assert f"| `better` | 62.3; +2.7 ({interval.low:+.1f} to {interval.high:+.1f}) |" in table


def test_scores_of_tasks_are_those_that_the_table_of_fine_tuning_counts(tmp_path):
    main = runpy.run_path(str(ROOT / "benchmarks" / "verdict" / "__main__.py"))
    file = tmp_path / "table.csv"
    file.write_text(
        "run,column,metric,score\nours-seed1,CoLA,matthews_correlation,20.5\n"
        "ours-seed1,STS-B,mean,61.0\nours-seed1,STS-B Pearson,pearson,60.0\n"
        "ours-seed1,STS-B Spearman,spearman,62.0\ntheirs-seed1,CoLA,matthews_correlation,3.5\n"
    )
    assert main["scores_of_tasks"](str(file)) == {
        "ours-seed1": {"CoLA": 20.5, "STS-B": 61.0},
        "theirs-seed1": {"CoLA": 3.5},
    }
    with pytest.raises(SystemExit, match="there is no such file"):
        main["scores_of_tasks"](str(tmp_path / "nothing.csv"))


def test_by_the_clock_an_arm_is_compared_at_the_end_of_the_baseline(drawn):
    import figures
    from tables import clock

    # The baseline ends at 5.0 after 60 and 100 s: the arm is there half way from 10 to 30 s, and
    # after 10 s: 3 and 10 times sooner, the geometric mean is sqrt(30).
    study = study_of(
        replace(run_of("base", 1, [6.0, 5.0]), seconds=(30.0, 60.0)),
        replace(run_of("base", 2, [6.0, 5.0]), seconds=(50.0, 100.0)),
        replace(run_of("ours", 1, [5.5, 4.5]), seconds=(10.0, 30.0)),
        replace(run_of("ours", 2, [5.0, 4.5]), seconds=(10.0, 30.0)),
        replace(run_of("worse", 1, [5.5]), seconds=(60.0,)),
        replace(run_of("ours", 3, [5.1], is_trial=True, peak=0.1), seconds=(9.0,)),
        replace(run_of("ours", 3, [5.2], is_trial=True, peak=0.2), seconds=(9.0,)),
    )
    table = clock(study, "base")
    assert "| `ours` | 2 | peak 0.1: 5.100; peak 0.2: 5.200 |" in table
    logs = [math.log(3), math.log(10)]
    reach = stats.t.ppf(0.975, 1) * stats.sem(logs)
    low, high = math.exp(statistics.fmean(logs) - reach), math.exp(statistics.fmean(logs) + reach)
    assert f"| {math.sqrt(30):.1f} times ({low:.1f} - {high:.1f}) |" in table
    assert "| not reached |" in table
    figures.clock(study, Path())
    lines = [line.get_xydata().tolist() for line in drawn()[0].lines]
    assert [[0.5, 6.0], [1.0, 5.0]] in lines and [[1.0, 5.5]] in lines


@pytest.fixture
def drawn(monkeypatch):
    """Return a function that returns the panels of the figure that was drawn last."""
    import figures

    saved = []
    monkeypatch.setattr(figures, "_save", lambda figure, file: saved.append(figure))
    return lambda: saved[-1].axes


def test_the_figures_draw_means_and_intervals_over_seeds(drawn):
    import figures

    losses = {
        "base": ([6.6, 6.0, 5.0], [6.8, 6.2, 5.2]),
        "better": ([6.6, 5.5, 4.6], [6.4, 5.5, 4.6]),
    }
    study = study_of(
        *(run_of(arm, seed, one) for arm, both in losses.items() for seed, one in enumerate(both))
    )
    figures.curves(study, Path())
    whole, last = drawn()
    # 100 steps of 1,000 tokens; the lowest arm first.
    assert whole.lines[1].get_xydata() == pytest.approx(
        np.array([[0.1, 6.7], [0.2, 6.1], [0.3, 5.1]])
    )
    assert last.lines[1].get_xydata() == pytest.approx(np.array([[0.3, 5.1]]))

    low, high = stats.ttest_rel([4.6, 4.6], [5.0, 5.2]).confidence_interval(0.95)
    figures.cost(study, "base", "better", file=Path())
    line, *_, dot, interval, _ = drawn()[0].lines
    assert line.get_ydata() == pytest.approx([0, -0.5]) and dot.get_ydata() == pytest.approx([-0.5])
    assert interval.get_ydata() == pytest.approx([low, high])


def test_seconds_of_paired_seeds_are_compared_by_their_ratios():
    from tables import seconds

    study = study_of(
        replace(run_of("base", 1, [6.0, 5.0]), seconds=(30.0, 60.0)),
        replace(run_of("base", 2, [6.0, 5.0]), seconds=(50.0, 100.0)),
        replace(run_of("ours", 1, [6.0, 5.0]), seconds=(20.0, 54.0), flops=0.5e12),
        replace(run_of("ours", 2, [6.0, 5.0]), seconds=(20.0, 40.0), flops=0.7e12),
    )
    logs = [math.log(0.9), math.log(0.4)]  # the geometric mean is 0.6
    reach = stats.t.ppf(0.975, 1) * stats.sem(logs)
    low, high = (math.exp(statistics.fmean(logs) + sign * reach) for sign in (-1, 1))
    assert f"| `ours` | 60.0% | 60.0% ({low:.1%} - {high:.1%}) |" in seconds(study, "base")


def scored(run, score):
    return replace(run, scores={"BLiMP": score})


def test_the_error_over_held_out_rows_is_that_of_drawing_batches_anew():
    from held_out import compare

    generator = np.random.default_rng(0)
    numbers = generator.integers(400, 900, 60)  # predictions of each batch
    base = generator.normal(4, 0.3, 60)  # some rows are harder for all
    shift = generator.normal(0.1, 0.02, 60)

    def losses(extra):
        noise = [generator.normal(0, 0.01, 60) for _ in range(3)]
        return {
            seed: list(zip(base + extra + one, numbers.tolist(), strict=True))
            for seed, one in enumerate(noise)
        }

    ours, theirs = losses(shift), losses(0)
    found = compare(ours, theirs)
    by_batch = np.subtract(*(np.array(list(side.values())) for side in (ours, theirs)))[:, :, 0]
    by_batch = by_batch.mean(0)  # over seeds
    draws = generator.integers(0, 60, (4000, 60))
    again = (by_batch * numbers)[draws].sum(1) / numbers[draws].sum(1)
    assert found["nats"] == pytest.approx(np.average(by_batch, weights=numbers), abs=1e-4)
    assert found["error_over_rows"] == pytest.approx(again.std(), rel=0.05)
    assert found["predictions"] == numbers.sum() and found["seeds"] == 3


def test_a_page_is_filled_from_the_records_and_says_what_is_wrong_with_a_mark(tmp_path):
    from studies import write_study

    study = study_of(
        *(run_of("base", seed, [6.9, 5.0 + seed / 100]) for seed in (1, 2, 3)),
        *(
            replace(run_of("better", seed, [6.6, 4.5 + seed / 90]), flops=0.9e12)
            for seed in (1, 2, 3)
        ),
        run_of("better", 7, [6.6, 4.4], is_trial=True, **{"learning_rate.peak": 2e-3}),
        run_of("better", 7, [6.6, 4.6], is_trial=True, **{"learning_rate.peak": 4e-3}),
    )
    write_study(study, tmp_path / "results" / "toy.json")
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "VERDICT.md"
    page.write_text(
        "# By hand\n<!-- table ends toy base -->\nold\n<!-- end -->\nmore\n"
        "<!-- table answers toy: Is it better? | better | base; And base? | base | better -->\n"
        "<!-- end -->\n<!-- table tuning toy -->\n<!-- end -->\n"
        "<!-- figure curves toy -->\n<!-- end -->\n"
        "<!-- figure cost toy base -->\n<!-- end -->\n"
    )
    finished = build(tmp_path)
    assert finished.returncode == 0, finished.stderr
    text = page.read_text()
    assert text.startswith("# By hand") and "old" not in text and "\nmore\n" in text
    assert "| `better` | 3 | 90.0% | 4.522 (4.511 - 4.533) | 0.10 | -0.498" in text
    assert "| Is it better? | `better` - `base` | -0.498" in text and "| lower |" in text
    assert "peak 0.002: 4.400; peak 0.004: 4.600" in text
    for kind in ("curves", "cost"):
        assert (tmp_path / "docs" / "figures" / f"toy-{kind}.png").exists()
    assert build(tmp_path).returncode == 0 and page.read_text() == text

    for mark, message in (
        ("<!-- table ends nothing base -->", "there is no results/nothing.json"),
        ("<!-- table end toy base -->", "end is none of clock, ends,"),
        ("<!-- table tuning toy -->\n<!-- table tuning toy -->", "<!-- end --> is missing after"),
    ):
        page.write_text(f"{mark}\n<!-- end -->\n")
        refused = build(tmp_path)
        assert refused.returncode == 1 and message in refused.stderr
        assert "Traceback" not in refused.stderr


def build(root):
    return subprocess.run(
        [sys.executable, "benchmarks/verdict", "build", "--root", str(root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
