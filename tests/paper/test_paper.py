"""The paper's builder: its pages, its statistics against SciPy, and records of tiny runs."""

import csv
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import tupelo
from tests.pretrain.conftest import command, shards

__all__ = ["command", "shards"]  # fixtures

PAPER = Path(__file__).parents[2] / "paper"


@pytest.fixture(autouse=True)
def _modules_of_the_paper(monkeypatch):
    monkeypatch.syspath_prepend(str(PAPER))


def study_of(ends, seconds=()):
    """Return a study with these losses at the end of each arm, by seed from 0 on."""
    from records import Study, StudyRun

    runs = tuple(
        StudyRun(arm, seed, False, {}, 1e12, ((100, 9.0), (200, loss)), "abc", {}, seconds)
        for arm, found in ends.items()
        for seed, loss in enumerate(found)
    )
    shared = {"batch.global_sequences": 10, "data.sequence_length": 100}
    return Study("toy", "text", "words", ("cpu",), ("float32",), {"torch": "2"}, 7.0, shared, runs)


def test_rebuilding_makes_no_difference(tmp_path):
    copy = shutil.copytree(PAPER, tmp_path / "paper", ignore=shutil.ignore_patterns("__pycache__"))
    for figure in copy.glob("figures/*"):
        figure.unlink()
    subprocess.run([sys.executable, copy / "build.py", "build"], check=True)
    for file in (*PAPER.glob("*.md"), *PAPER.glob("figures/*")):
        assert file.read_bytes() == (copy / file.relative_to(PAPER)).read_bytes(), file


def test_the_interval_of_paired_seeds_is_that_of_scipy():
    from intervals import paired_mean

    ours, theirs = {1: 4.0, 2: 4.2, 3: 4.1, 9: 0.0}, {1: 4.3, 2: 4.3, 3: 4.2, 8: 9.0}
    found = paired_mean(ours, theirs)
    test = stats.ttest_rel([4.0, 4.2, 4.1], [4.3, 4.3, 4.2])
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert found.p_value == pytest.approx(test.pvalue) and found.num_pairs == 3
    assert paired_mean({1: 1.0}, {2: 1.0}) is None
    assert paired_mean({1: 1.0}, {1: 2.0}).p_value == 1  # one pair has no interval
    assert paired_mean({1: 1.0, 2: 1.0}, {1: 1.0, 2: 1.0}).p_value == 1  # nor equal losses
    assert paired_mean({1: math.inf, 2: 1.0}, {1: 1.0, 2: math.inf}) is None


def test_p_values_are_corrected_as_by_hand():
    from intervals import holm

    # Sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2 (not less than the one before), 0.5 x 1.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_question_compares_arms_their_means_or_their_differences():
    from tables import Question, answers

    ends = {"a": [4.5, 4.6, 4.4], "b": [4.8, 4.9, 4.6], "c": [4.2, 4.1, 4.2], "d": [4.3, 4.2, 4.4]}
    a, b, c, d = map(np.array, ends.values())
    study = study_of(ends)
    for arm, against, ours, theirs in (
        ("a", "b", a, b),
        ("a, b", "c, d", (a + b) / 2, (c + d) / 2),
        ("a - b", "c - d", a - b, c - d),
    ):
        test = stats.ttest_rel(ours, theirs)
        low, high = test.confidence_interval(0.95)
        found = f"| 3 | {(ours - theirs).mean():+.3f} ({low:+.3f} to {high:+.3f}) |"
        assert f"{found} {test.pvalue:.3f} |" in answers([Question("?", study, arm, against)])
    with pytest.raises(SystemExit, match="toy has no runs of e; its arms: a, b, c, d"):
        answers([Question("?", study, "a", "e")])


def test_how_many_times_sooner_is_a_geometric_mean_over_seeds():
    from tables import clock

    # The baseline ends at 5 after 100 s; ours are there half and a quarter of the way to 20 s.
    base, ours = study_of({"base": [5.0, 5.0]}, (50.0, 100.0)), study_of({"ours": [1.0, -7.0]})
    runs = [replace(run, seconds=(0.0, 20.0)) for run in ours.runs]
    logs = [math.log(100 / 10), math.log(100 / 5)]
    reach = stats.t.ppf(0.975, 1) * stats.sem(logs)
    mean, low, high = (math.exp(np.mean(logs) + one * reach) for one in (0, -1, 1))
    table = clock(replace(base, runs=(*base.runs, *runs)), "base")
    assert f"| {mean:.1f} times ({low:.1f} - {high:.1f}) |" in table


@pytest.fixture(scope="module")
def sweep(command, tmp_path_factory):
    """The folder of a sweep with one run, and its minimal pairs, of which one is a tie."""
    folder = tmp_path_factory.mktemp("sweep")
    command.train(folder / "runs" / "tiny-seed0", "--steps", "8", "--evaluation.every_steps", "4")
    (folder / "pairs").mkdir()
    pairs = [("the cat sat", "the sat cat"), ("a cat", "a cats"), ("a cat", "a cat")]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in pairs]
    (folder / "pairs" / "order.jsonl").write_text("\n".join(lines))
    return folder


def test_a_score_is_the_sum_over_tokens_that_are_masked_alone(sweep):
    from minimal_pairs import pseudo_log_likelihood

    encoder = tupelo.load(sweep / "runs" / "tiny-seed0")
    (ids,), mask = encoder.encode("the cat sat").ids, int(encoder.encode("[MASK]").ids[0, 1])
    expected = 0.0
    for place in range(1, len(ids) - 1):
        hidden = ids.clone()
        hidden[place] = mask
        with torch.no_grad():
            (logits,) = encoder.model.logits(hidden[None], torch.tensor([place]))
        expected += float(logits.exp()[ids[place]].div(logits.exp().sum()).log())
    found = pseudo_log_likelihood(encoder.model, ids, mask)
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_record_has_the_losses_and_the_scores_of_its_runs(sweep, monkeypatch, capsys):
    import build
    import minimal_pairs

    def printed_by(module, *words):
        monkeypatch.setattr(sys, "argv", ["program", *map(str, words)])
        module.main()
        return capsys.readouterr().out

    words = [sweep / "runs" / "tiny-seed0", "--pairs", sweep / "pairs"]
    printed = printed_by(minimal_pairs, *words)
    mean, paradigm = csv.DictReader(printed.splitlines())
    assert (mean["column"], paradigm["column"]) == ("BLiMP", "BLiMP order")
    assert float(mean["score"]) < 67  # a tie is not solved
    (sweep / "pairs.csv").write_text(printed)
    (sweep / "runs" / "begun-seed0").mkdir()
    (sweep / "runs" / "begun-seed0" / "run.json").write_text("{}")
    theirs = {"learning_rate.peak": 1e-3, "precision": "float32", "threads": 1}
    theirs |= {"seed": 0, "theirs": "bert"}
    (sweep / "runs" / "theirs-seed0").mkdir()  # of benchmarks/against_hugging_face
    against = sweep / "runs" / "theirs-seed0" / "against.json"
    against.write_text(json.dumps({**theirs, "curve": [[4, 1.5, 6.5], [8, 3.0, 6.25]]}))
    words = ["--to", sweep / "record.json", "--scores", f"first={sweep / 'pairs.csv'}"]
    assert "left out" in printed_by(build, "collect", sweep / "runs", *words)
    their_run, run = json.loads((sweep / "record.json").read_text())["runs"]
    assert (their_run["arm"], their_run["seconds"]) == ("bert", [1.5, 3.0])
    assert their_run["curve"] == [[4, 6.5], [8, 6.25]]
    evaluations = (sweep / "runs" / "tiny-seed0" / "evals.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in evaluations]
    assert [loss for _, loss in run["curve"]] == pytest.approx(losses, abs=1e-5)
    assert run["scores"] == {"BLiMP, first": pytest.approx(float(mean["score"]))}
