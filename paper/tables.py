"""The tables of the paper, from the records alone."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from intervals import CONFIDENCE, PairedMean, holm, paired_mean
from records import Study, StudyRun

UNKNOWN = "-"
MINUS, MEAN = " - ", ", "  # between the arms of a question

Runs = Mapping[int, StudyRun]  # of an arm, by seed
Values = Mapping[int, float]


class Question(NamedTuple):
    """Two arms of a study, and what their difference answers."""

    text: str
    study: Study
    arm: str  # whose loss is compared; `A - B`: the difference of two arms is; `A, B`: their mean
    against: str  # with that of this arm, difference or mean
    score: str = ""  # what is compared instead of the loss, in percent; the same for a table


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ends(study: Study, baseline: str) -> str:
    """Return a row for each arm: its FLOPs and its loss at the end, both against the baseline."""
    theirs = study.of_arm(baseline)
    rows = []
    for arm in sorted(study.arms, key=lambda arm: mean_loss(study.of_arm(arm))):
        runs = study.of_arm(arm)
        pair = paired_mean(losses(runs), losses(theirs))
        rows.append(
            [
                f"`{arm}`",
                str(len(runs)),
                _share_of_flops(runs, theirs),
                mean_and_range(runs),
                tokens(study, list(runs.values())),
                "baseline" if arm == baseline else difference(pair, len(runs)),
            ]
        )
    header = ["arm", "seeds", "FLOPs", "loss at the end (range)"]
    header += ["M tokens to 0.3 below the unigram entropy", f"against `{baseline}`"]
    return markdown(header, rows)


def tuning(study: Study) -> str:
    """Return the trials of each arm, a row for each length, the best first."""
    trials = [run for run in study.runs if run.is_trial]
    rows = [
        [f"`{arm}`", f"{steps:,}", _tried([one for one in of_arm if one.steps == steps])]
        for arm in dict.fromkeys(run.arm for run in trials)
        for of_arm in [study.trials_of(arm)]
        for steps in sorted({run.steps for run in of_arm})
    ]
    return markdown(["arm", "steps of a trial", "tried, the best first"], rows)


def scores(study: Study, baseline: str, names: Sequence[str] = ()) -> str:
    """Return other measures (none named: all) of each arm in percent, and against the baseline.

    Raises:
        SystemExit: no run has a measure of such a name.
    """
    known = list(dict.fromkeys(name for run in study.runs for name in run.scores))
    names = names or known
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"{study.name} has no scores {unknown}; its scores: {'; '.join(known)}")
    rows = []
    for arm in study.arms:
        theirs = {} if arm == baseline else study.of_arm(baseline)
        cells = [_score(study.of_arm(arm), theirs, name) for name in names]
        rows.append([f"`{arm}`", *cells])
    return markdown([f"arm, and against `{baseline}`", *names], rows)


def speed(study: Study, baseline: str, *targets: str) -> str:
    """Return the share of the baseline's steps from the end of the plateau to each target."""
    rows = []
    for arm in study.arms:
        if arm != baseline:
            sides = [study.of_arm(arm), study.of_arm(baseline)]
            cells = []
            for target in targets:
                ours, theirs = (_log_steps(study, runs, float(target)) for runs in sides)
                cells.append(_ratio(ours, theirs, ".0%"))
            rows.append([f"`{arm}`", *cells])
    return markdown(["arm", *(f"to {float(target):.2f}" for target in targets)], rows)


def seconds(study: Study, baseline: str) -> str:
    """Return FLOPs and seconds against the baseline, of arms that were trained side by side."""
    theirs = study.of_arm(baseline)
    rows = [
        [
            f"`{arm}`",
            _share_of_flops(study.of_arm(arm), theirs),
            _ratio(_log_seconds(study.of_arm(arm)), _log_seconds(theirs), ".1%"),
        ]
        for arm in study.arms
        if arm != baseline
    ]
    return markdown(["arm", "FLOPs", "seconds"], rows)


def clock(study: Study, baseline: str) -> str:
    """Return a row for each arm by the clock: its end, and when it is where the baseline ends."""
    theirs, per_step = study.of_arm(baseline), study.tokens_per_step
    rows = []
    for arm in study.arms:
        runs = study.of_arm(arm)
        rows.append(
            [
                f"`{arm}`",
                str(len(runs)),
                _tried(study.trials_of(arm)),
                f"{statistics.fmean(run.seconds[-1] for run in runs.values()) / 60:.0f}",
                f"{statistics.fmean(run.steps for run in runs.values()) * per_step / 1e6:.1f}",
                mean_and_range(runs),
                "baseline" if arm == baseline else _times_sooner(runs, theirs),
            ]
        )
    header = ["arm", "seeds", "trials: loss at the end", "minutes", "M tokens"]
    header += ["loss at the end (range)", f"sooner where `{baseline}` ends"]
    return markdown(header, rows)


def answers(questions: Sequence[Question]) -> str:
    """Return a row for each question: the difference with its interval, and what it says.

    Of losses at the end or, where questions name one, of a score. The p values are corrected for
    the number of questions, and an answer needs such a p value.
    """
    score = questions[0].score
    pairs = [_answered(question) for question in questions]
    p_values = holm([1.0 if pair is None else pair.p_value for pair in pairs])
    rows = [
        [
            question.text,
            _in_words(question),
            UNKNOWN if pair is None else str(pair.num_pairs),
            difference(pair, digits=1 if score else 3),
            f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001",
            _answer(pair, p_value),
        ]
        for question, pair, p_value in zip(questions, pairs, p_values, strict=True)
    ]
    what = "points" if score else "nats at the end"
    header = ["question", "arms", "pairs", f"{what}, 95 % interval", "p (Holm)", ""]
    return markdown(header, rows)


def primary(questions: Sequence[Question], limits: Sequence[str]) -> str:
    """Return a short row for each question, with what limits its answer; p is by Holm over all."""
    pairs = [_answered(question) for question in questions]
    p_values = holm([pair.p_value if pair else 1.0 for pair in pairs])
    rows = []
    for question, pair, p_value, limit in zip(questions, pairs, p_values, limits, strict=True):
        seeds = str(pair.num_pairs if pair else 0)
        arms = _in_words(question)
        rows.append([question.text, arms, difference(pair), f"{p_value:.3f}", seeds, limit])
    header = ["question", "arms", "nats at the end, 95 % interval", "p (Holm)", "seeds"]
    return markdown([*header, "what limits it"], rows)


def _answered(question: Question) -> PairedMean | None:
    _, study, arm, against, score = question
    ours, theirs = (_compared(study, arms, score) for arms in (arm, against))
    if not ours.keys() & theirs.keys():
        raise SystemExit(f"{arm} and {against} have no seed in common")
    return paired_mean(ours, theirs)


def _compared(study: Study, arms: str, score: str) -> Values:
    """Return the mean score or loss over arms, or such a difference, of each seed that all have."""
    means = []
    for several in arms.split(MINUS):
        runs = [study.of_arm(arm) for arm in several.split(MEAN)]
        found = [_scores(one, score) if score else losses(one) for one in runs]
        seeds = set[int].intersection(*(set(one) for one in found))
        means.append({seed: statistics.fmean(one[seed] for one in found) for seed in seeds})
    if len(means) == 1:
        return means[0]
    first, second = means
    return {seed: first[seed] - second[seed] for seed in first.keys() & second.keys()}


def _in_words(question: Question) -> str:
    sides = []
    for arms in (question.arm, question.against):
        words = re.sub(r"\w[^\s,]*", r"`\g<0>`", arms)
        mean = f"mean of {words}" if MEAN in arms else words
        sides.append(f"({mean})" if MINUS in arms else mean)
    return " - ".join(sides)


def _answer(pair: PairedMean | None, p_value: float) -> str:
    if pair is None or p_value >= 1 - CONFIDENCE:
        return "not significant"
    return "lower" if pair.mean < 0 else "higher"


def losses(runs: Runs) -> dict[int, float]:
    """Return the loss at the end of each run by seed, in nats."""
    return {seed: run.loss for seed, run in runs.items()}


def mean_loss(runs: Runs) -> float:
    """Return the mean loss at the end in nats."""
    return statistics.fmean(losses(runs).values())


def mean_flops(runs: Runs) -> float:
    """Return the mean FLOPs of a run; 0: they were not counted."""
    return statistics.fmean([run.flops for run in runs.values() if math.isfinite(run.loss)] or [0])


def difference(pair: PairedMean | None, num_runs: int = 0, digits: int = 3) -> str:
    """Return a difference, its interval, and the number of pairs where runs lack one."""
    if pair is None:
        return UNKNOWN
    mean, low, high = (f"{one:+.{digits}f}" for one in (pair.mean, pair.low, pair.high))
    if pair.num_pairs < 2:
        return f"{mean} (one seed)"
    pairs = f"; {pair.num_pairs} pairs" if pair.num_pairs < num_runs else ""
    return f"{mean} ({low} to {high}{pairs})"


def mean_and_range(runs: Runs) -> str:
    """Return the mean loss at the end, and of several seeds the least and the largest."""
    found = sorted(losses(runs).values())
    span = f" ({found[0]:.3f} - {found[-1]:.3f})" if len(found) > 1 else ""
    return f"{mean_loss(runs):.3f}{span}"


def tokens(study: Study, runs: Sequence[StudyRun]) -> str:
    """Return the median tokens, in millions, with which runs left the plateau.

    An upper bound where a run had left it at its first evaluation.
    """
    steps = [run.reached(study.plateau_end) for run in runs]
    median = statistics.median(math.inf if step is None else step for step in steps)
    if math.isinf(median):
        return "not left"
    bound = "<= " if any(run.curve[0][1] <= study.plateau_end for run in runs) else ""
    return f"{bound}{median * study.tokens_per_step / 1e6:.2f}"


def _tried(trials: Sequence[StudyRun]) -> str:
    """Return the losses of trials, the best first, each with the settings in which they differ."""
    settings = [trial.settings for trial in trials]
    names = {name for one in settings for name in one if one[name] != settings[0].get(name)}
    found = []
    for run in sorted(trials, key=attrgetter("loss")):
        point = [f"{name.split('.')[-1]} {run.settings[name]:g}" for name in sorted(names)]
        found.append(f"{', '.join(point) or 'as given'}: {run.loss:.3f}")
    return "; ".join(found)


def _score(runs: Runs, others: Runs, name: str) -> str:
    ours = _scores(runs, name)
    if not ours:
        return UNKNOWN
    pair = paired_mean(ours, _scores(others, name))
    mean = f"{statistics.fmean(ours.values()):.1f}"
    if pair is None or pair.num_pairs < 2:
        return mean
    return f"{mean}; {difference(pair, len(ours), digits=1)}"


def _scores(runs: Runs, name: str) -> dict[int, float]:
    return {seed: run.scores[name] for seed, run in runs.items() if name in run.scores}


def _times_sooner(ours: Runs, theirs: Runs) -> str:
    """Return how many times sooner ours are where theirs end."""
    rates = {}  # logarithms of 1 / seconds
    for seed in ours.keys() & theirs.keys():
        spent = ours[seed].seconds_to(theirs[seed].loss)
        rates[seed] = -math.inf if spent is None else -math.log(spent)
    return _ratio(
        rates, {seed: -one for seed, one in _log_seconds(theirs).items()}, ".1f", " times"
    )


def _ratio(ours: Values, theirs: Values, form: str, unit: str = "") -> str:
    """Return a geometric mean over paired seeds and its interval, from logarithms.

    Infinite ones are of a loss that was never reached.
    """
    for side, words in ((ours, "not reached"), (theirs, "not reached by the baseline")):
        if any(math.isinf(side[seed]) for seed in ours.keys() & theirs.keys()):
            return words
    pair = paired_mean(ours, theirs)
    if pair is None:
        return UNKNOWN
    mean, low, high = (format(math.exp(one), form) for one in pair[:3])
    return mean + unit + (f" ({low} - {high})" if pair.num_pairs > 1 else "")


def _log_steps(study: Study, runs: Runs, target: float) -> dict[int, float]:
    """Return the logarithm of the steps from the end of the plateau to a target, by seed."""
    found = {}
    for seed, run in runs.items():
        start, end = run.reached(study.plateau_end), run.reached(target)
        found[seed] = math.inf if start is None or end is None else math.log(end - start)
    return found


def _log_seconds(runs: Runs) -> dict[int, float]:
    ended = {seed: run for seed, run in runs.items() if run.seconds and math.isfinite(run.loss)}
    return {seed: math.log(run.seconds[-1]) for seed, run in ended.items()}


def _share_of_flops(runs: Runs, others: Runs) -> str:
    ours, theirs = mean_flops(runs), mean_flops(others)
    return f"{ours / theirs:.1%}" if ours and theirs else UNKNOWN
