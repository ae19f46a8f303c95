"""The tables of docs/VERDICT.md, from the studies alone."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from intervals import CONFIDENCE, PairedMean, holm, paired_mean
from studies import Study, StudyRun

UNKNOWN = "-"
MINUS, MEAN = " - ", ", "  # between the arms of a question


@dataclass(frozen=True)
class Question:
    """Two arms of a study, and what their difference answers.

    Attributes:
        text: the question.
        arm: whose loss is compared; `A - B`: the difference of two arms is; `A, B`: their mean.
        against: with that of this arm, difference or mean.
        score: what is compared instead of the loss, in percent; the same for a table.
    """

    text: str
    arm: str
    against: str
    score: str = ""


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ends(study: Study, baseline: str) -> str:
    """Return a row for each arm: its FLOPs and its loss at the end, both against the baseline.

    FLOPs are a share of those of the baseline.
    """
    against = losses(study.of_arm(baseline))
    pairs = {arm: paired_mean(losses(study.of_arm(arm)), against) for arm in study.arms}
    rows = []
    for arm in sorted(study.arms, key=lambda arm: mean_loss(study.of_arm(arm))):
        runs = study.of_arm(arm)
        rows.append(
            [
                f"`{arm}`",
                str(len(runs)),
                _share_of_flops(runs, study.of_arm(baseline)),
                mean_and_range(runs),
                tokens(study, list(runs.values())),
                "baseline" if arm == baseline else difference(pairs[arm], len(runs)),
            ]
        )
    header = ["arm", "seeds", "FLOPs", "loss at the end (range)"]
    header += ["M tokens to leave the plateau", f"against `{baseline}`"]
    return markdown(header, rows)


def tuning(study: Study) -> str:
    """Return the trials of each arm, a row for each length, the best first."""
    rows = []
    for arm in dict.fromkeys(run.arm for run in study.runs if run.is_trial):
        trials = study.trials_of(arm)
        for steps in sorted({run.steps for run in trials}):
            of_length = [run for run in trials if run.steps == steps]
            rows.append([f"`{arm}`", f"{steps:,}", _tried(of_length)])
    return markdown(["arm", "steps of a trial", "tried, the best first"], rows)


def scores(study: Study, baseline: str, names: Sequence[str] = ()) -> str:
    """Return other measures of each arm in percent, and its difference from the baseline.

    Args:
        study: whose runs were measured.
        baseline: an arm.
        names: of measures; none: all.

    Raises:
        SystemExit: no run has a measure of such a name.
    """
    known = list(dict.fromkeys(name for run in study.runs for name in run.scores))
    names = names or known
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"{study.name} has no scores {unknown}; its scores: {'; '.join(known)}")
    rows = []
    for arm in study.arms:
        against = {} if arm == baseline else study.of_arm(baseline)
        cells = [_score(study.of_arm(arm), against, name) for name in names]
        rows.append([f"`{arm}`", *cells])
    return markdown([f"arm, and against `{baseline}`", *names], rows)


def speed(study: Study, baseline: str, targets: Sequence[float]) -> str:
    """Return the share of the baseline's steps, from leaving the plateau to each target."""
    rows = [
        [f"`{arm}`", *(_share(study, arm, baseline, target) for target in targets)]
        for arm in study.arms
        if arm != baseline
    ]
    return markdown(["arm", *(f"to {target:.2f}" for target in targets)], rows)


def seconds(study: Study, baseline: str) -> str:
    """Return the FLOPs and the seconds of each arm, as a share of the baseline's.

    Only for arms that were trained side by side. The ratio of seconds is a geometric mean over
    paired seeds.
    """
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
    """Return a row for each arm by the clock: its end, and when it is where the baseline ends.

    The ratio of the two times is a geometric mean over paired seeds.
    """
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


def answers(study: Study, questions: Sequence[Question]) -> str:
    """Return a row for each question: the difference with its interval, and what it says.

    Of losses at the end or, where questions name one, of a score. The p values are corrected for
    the number of questions, and an answer needs such a p value.

    Raises:
        SystemExit: a question names an unknown arm, or arms that have no seed in common.
    """
    pairs = [_answered(study, one) for one in questions]
    p_values = holm([1.0 if pair is None else pair.p_value for pair in pairs])
    rows = [
        [
            question.text,
            f"{_in_words(question.arm)} - {_in_words(question.against)}",
            UNKNOWN if pair is None else str(pair.num_pairs),
            difference(pair, digits=1 if question.score else 3),
            f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001",
            _answer(pair, p_value),
        ]
        for question, pair, p_value in zip(questions, pairs, p_values, strict=True)
    ]
    what = "points" if questions[0].score else "nats at the end"
    header = ["question", "arms", "pairs", f"{what}, 95 % interval", "p (Holm)", ""]
    return markdown(header, rows)


def _answered(study: Study, question: Question) -> PairedMean | None:
    ours, theirs = (
        _compared(study, arms, question.score) for arms in (question.arm, question.against)
    )
    if not ours.keys() & theirs.keys():
        raise SystemExit(f"{question.arm} and {question.against} have no seed in common")
    return paired_mean(ours, theirs)


def _compared(study: Study, arms: str, score: str) -> dict[int, float]:
    first, *others = (
        _mean_over(study, several.split(MEAN), score) for several in arms.split(MINUS)
    )
    for other in others:
        first = {seed: first[seed] - other[seed] for seed in first.keys() & other.keys()}
    return first


def _mean_over(study: Study, arms: Sequence[str], score: str) -> dict[int, float]:
    """Return the mean score or loss at the end over arms, of each seed that all of them have."""
    runs = [study.of_arm(arm) for arm in arms]
    found = [_scores(one, score) if score else losses(one) for one in runs]
    seeds = set[int].intersection(*(set(one) for one in found))
    return {seed: statistics.fmean(one[seed] for one in found) for seed in seeds}


def _in_words(arms: str) -> str:
    words = re.sub(r"\w[^\s,]*", r"`\g<0>`", arms)
    mean = f"mean of {words}" if MEAN in arms else words
    return f"({mean})" if MINUS in arms else mean


def _answer(pair: PairedMean | None, p_value: float) -> str:
    if pair is None or p_value >= 1 - CONFIDENCE:
        return "cannot tell"
    return "lower" if pair.mean < 0 else "higher"


def losses(runs: Mapping[int, StudyRun]) -> dict[int, float]:
    """Return the loss at the end of each run by seed, in nats."""
    return {seed: run.loss for seed, run in runs.items()}


def mean_loss(runs: Mapping[int, StudyRun]) -> float:
    """Return the mean loss at the end in nats."""
    return statistics.fmean(losses(runs).values())


def mean_flops(runs: Mapping[int, StudyRun]) -> float:
    """Return the mean FLOPs of a run; 0: they were not counted."""
    return statistics.fmean(run.flops for run in runs.values())


def difference(pair: PairedMean | None, num_runs: int = 0, digits: int = 3) -> str:
    """Return a difference, its interval, and the number of pairs where runs lack one."""
    if pair is None:
        return UNKNOWN
    mean, low, high = (f"{one:+.{digits}f}" for one in (pair.mean, pair.low, pair.high))
    if pair.num_pairs < 2:
        return f"{mean} (one seed)"
    pairs = f"; {pair.num_pairs} pairs" if pair.num_pairs < num_runs else ""
    return f"{mean} ({low} to {high}{pairs})"


def mean_and_range(runs: Mapping[int, StudyRun]) -> str:
    """Return the mean loss at the end, and of several seeds the least and the largest."""
    found = sorted(losses(runs).values())
    span = f" ({found[0]:.3f} - {found[-1]:.3f})" if len(found) > 1 else ""
    return f"{mean_loss(runs):.3f}{span}"


def tokens(study: Study, runs: Sequence[StudyRun]) -> str:
    """Return the median tokens with which runs left the plateau, in millions; never: infinity.

    An upper bound where a run had left it at its first evaluation.
    """
    steps = [run.reached(study.plateau_end) for run in runs]
    median = statistics.median(math.inf if step is None else step for step in steps)
    if math.isinf(median):
        return "not left"
    bound = "<= " if any(run.curve[0][1] <= study.plateau_end for run in runs) else ""
    return f"{bound}{median * study.tokens_per_step / 1e6:.2f}"


def point(run: StudyRun, trials: Sequence[StudyRun]) -> str:
    """Return the values of a trial in which the trials of its arm differ, apart from length."""
    names = {
        name
        for trial in trials
        for name, value in trial.settings.items()
        if value != run.settings.get(name)
    }
    parts = [f"{name.split('.')[-1]} {run.settings[name]:g}" for name in sorted(names - {"steps"})]
    return ", ".join(parts) or "as given"


def _score(runs: Mapping[int, StudyRun], others: Mapping[int, StudyRun], name: str) -> str:
    ours, theirs = _scores(runs, name), _scores(others, name)
    if not ours:
        return UNKNOWN
    pair = paired_mean(ours, theirs)
    mean = f"{statistics.fmean(ours.values()):.1f}"
    if pair is None or pair.num_pairs < 2:
        return mean
    return f"{mean}; {difference(pair, len(ours), digits=1)}"


def _scores(runs: Mapping[int, StudyRun], name: str) -> dict[int, float]:
    return {seed: run.scores[name] for seed, run in runs.items() if name in run.scores}


def _tried(trials: Sequence[StudyRun]) -> str:
    best_first = sorted(trials, key=attrgetter("loss"))
    return "; ".join(f"{point(run, trials)}: {run.loss:.3f}" for run in best_first)


def _times_sooner(ours: Mapping[int, StudyRun], theirs: Mapping[int, StudyRun]) -> str:
    """Return how many times sooner ours are where theirs end: geometric mean, interval."""
    rates = {}  # logarithms of 1 / seconds
    for seed in ours.keys() & theirs.keys():
        spent = ours[seed].seconds_to(theirs[seed].loss)
        rates[seed] = -math.inf if spent is None else -math.log(spent)
    their_rates = {seed: -one for seed, one in _log_seconds(theirs).items()}
    return _ratio(rates, their_rates, ".1f", " times")


def _share(study: Study, arm: str, baseline: str, target: float) -> str:
    """Return the ratio of the steps from the plateau to a target: geometric mean, interval."""
    ours, theirs = (_log_steps(study, study.of_arm(name), target) for name in (arm, baseline))
    return _ratio(ours, theirs, ".0%")


def _ratio(
    ours: Mapping[int, float], theirs: Mapping[int, float], form: str, unit: str = ""
) -> str:
    """Return a geometric mean and its interval, from logarithms; infinite: a loss never reached."""
    seeds = ours.keys() & theirs.keys()
    for side, words in ((ours, "not reached"), (theirs, "not reached by the baseline")):
        if any(math.isinf(side[seed]) for seed in seeds):
            return words
    pair = paired_mean(ours, theirs)
    if pair is None:
        return UNKNOWN
    mean, low, high = (format(math.exp(one), form) for one in (pair.mean, pair.low, pair.high))
    return mean + unit + (f" ({low} - {high})" if pair.num_pairs > 1 else "")


def _log_steps(study: Study, runs: Mapping[int, StudyRun], target: float) -> dict[int, float]:
    found = {}
    for seed, run in runs.items():
        start, end = run.reached(study.plateau_end), run.reached(target)
        if start is None or end is None:
            found[seed] = math.inf
        elif end > start:
            found[seed] = math.log(end - start)
        else:
            raise SystemExit(f"{run.arm} reaches {target} before it has left the plateau")
    return found


def _log_seconds(runs: Mapping[int, StudyRun]) -> dict[int, float]:
    return {seed: math.log(run.seconds[-1]) for seed, run in runs.items() if run.seconds}


def _share_of_flops(runs: Mapping[int, StudyRun], others: Mapping[int, StudyRun]) -> str:
    flops = mean_flops(others)
    return f"{mean_flops(runs) / flops:.1%}" if flops else UNKNOWN
