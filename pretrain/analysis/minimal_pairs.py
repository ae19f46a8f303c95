"""The analysis `minimal_pairs`: tables and the picture of measures/minimal_pairs.py."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from data_prep.files.progress_bar import progress_bar
from pretrain.analysis.findings import Cell, Findings, Table
from pretrain.analysis.measures.minimal_pairs import Paradigm, read_paradigms, solved
from pretrain.analysis.panels import (
    SMALL,
    empty_figure,
    legend_of_runs,
    rows_of_panels,
    set_up,
    when,
)
from pretrain.analysis.subjects import Subject
from pretrain.convert.pretrained import Pretrained, load_pretrained, restored_model
from pretrain.reports.html import GRID, INK, line_style

ROW, LEGEND = 0.24, 1.2  # inches
CHANCE = 0.5

Accuracies = dict[str, dict[str, float]]  # of each run, by paradigm


def findings(subjects: Sequence[Subject], folder: Path, most: int | None) -> Findings:
    """Return the share of pairs that each run solves.

    Args:
        subjects: the runs.
        folder: of the pairs.
        most: pairs of each file; None: all.

    Raises:
        ConfigError: there are no pairs, or a run predicts no words.
    """
    paradigms = read_paradigms(folder, most)
    total = len(subjects) * sum(len(paradigm.pairs) for paradigm in paradigms)
    measured: Accuracies = {}
    with progress_bar("minimal pairs", total, "pair") as bar:
        for subject in subjects:
            pretrained = _pretrained(subject)
            model = restored_model(pretrained)
            longest = subject.settings.model.max_sequence_length
            measured[subject.label] = {
                paradigm.name: statistics.fmean(
                    solved(model, pretrained.text_encoder, paradigm, longest_row=longest, bar=bar)
                )
                for paradigm in paradigms
            }
    steps = {subject.label: subject.steps[0] for subject in subjects}
    caption = _caption(subjects, paradigms)
    return Findings(
        _short(measured, steps, paradigms),
        {"paradigms": _table(measured, steps, paradigms)},
        {"minimal_pairs": draw_accuracies(measured, paradigms, caption)},
        [caption],
    )


def _pretrained(subject: Subject) -> Pretrained:
    step = subject.steps[0]
    if step:
        return load_pretrained(subject.folder, checkpoint=step)
    # The weights at the start need no checkpoint.
    return load_pretrained(subject.folder)._replace(weights=subject.model(step).state_dict())


def draw_accuracies(measured: Accuracies, paradigms: Sequence[Paradigm], caption: str) -> Figure:
    """Draw the accuracy of each run for each phenomenon, and over all paradigms."""
    terms = _terms(paradigms)
    figure = empty_figure(caption, height=LEGEND + ROW * len(terms))
    ((axes,),) = rows_of_panels(figure, (1,))
    set_up(axes, "minimal pairs", xlabel="share of pairs solved", ylabel="")
    for number, found in enumerate(measured.values()):
        shares = [_mean(found, names) for names in terms.values()]
        style = {**line_style(number), "linestyle": "none"}
        axes.plot(shares, range(len(terms)), **style, markersize=4)
    axes.axvline(CHANCE, color=INK, linestyle=":", linewidth=0.8)
    axes.set_yticks(range(len(terms)), [term.replace("_", " ") for term in terms], fontsize=SMALL)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    legend_of_runs(axes, list(measured))
    return figure


def _terms(paradigms: Sequence[Paradigm]) -> dict[str, list[str]]:
    """Return the names of the paradigms of each phenomenon; those of all of them come first."""
    terms = {"all": [paradigm.name for paradigm in paradigms]}
    for paradigm in sorted(paradigms, key=lambda one: one.term):
        terms.setdefault(paradigm.term, []).append(paradigm.name)
    return terms


def _mean(found: dict[str, float], names: Sequence[str]) -> float:
    return statistics.fmean(found[name] for name in names)


def _table(measured: Accuracies, steps: dict[str, int], paradigms: Sequence[Paradigm]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, steps[run], one.term, one.name, len(one.pairs), found[one.name])
        for run, found in measured.items()
        for one in paradigms
    ]
    return Table(("run", "step", "term", "paradigm", "pairs", "accuracy"), rows)


def _short(measured: Accuracies, steps: dict[str, int], paradigms: Sequence[Paradigm]) -> Table:
    terms = _terms(paradigms)
    rows: list[tuple[Cell, ...]] = []
    for run, found in measured.items():
        shares = {term: _mean(found, names) for term, names in terms.items()}
        mean = shares.pop("all")
        best, worst = (choose(shares, key=shares.__getitem__) for choose in (max, min))
        rows.append(
            (run, steps[run], f"{mean:.1%}")
            + (f"{best} {shares[best]:.1%}", f"{worst} {shares[worst]:.1%}")
        )
    return Table(("run", "step", "solved", "best", "worst"), rows)


def _caption(subjects: Sequence[Subject], paradigms: Sequence[Paradigm]) -> str:
    named = ", ".join(f"{subject.label} {when(subject.steps)}" for subject in subjects)
    pairs = sum(len(paradigm.pairs) for paradigm in paradigms)
    return (
        f"{named}: share of {pairs:,} minimal pairs of {len(paradigms)} paradigms in which the "
        "good sentence has the higher pseudo-log-likelihood (Salazar et al., Eq. 1); a tie is not "
        "solved. The mean is over paradigms; dotted: chance."
    )
