"""The analysis `lesion`: tables and the picture of measures/lesion.py."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from data_prep.files.progress_bar import progress_bar
from pretrain.analysis.findings import Cell, Findings, Table
from pretrain.analysis.measures.lesion import (
    DRAWS,
    KEEP_RATIOS,
    Lesions,
    held_out_losses,
    measure_lesions,
)
from pretrain.analysis.panels import (
    PANEL_HEIGHT,
    empty_figure,
    legend_of_runs,
    rows_of_panels,
    set_up,
    when,
    whole_ticks,
)
from pretrain.analysis.subjects import Subject, num_rows
from pretrain.reports.html import line_style

BESIDE = 0.01  # keep ratio by which the runs are apart


def findings(subjects: Sequence[Subject]) -> Findings:
    """Return the losses of each run."""
    measured: dict[str, Lesions] = {}
    batches = {subject.label: subject.batches() for subject in subjects}
    total = sum(
        num_rows(batches[subject.label]) * _most_networks(subject.settings.model.num_layers)
        for subject in subjects
    )
    with progress_bar("lesion", total, "row") as bar:
        for subject in subjects:
            model = subject.model(subject.steps[0])
            loss = held_out_losses(model, batches[subject.label], bar)
            measured[subject.label] = measure_lesions(
                loss, len(model.encoder.blocks), rescale=subject.settings.layer_drop.rescale
            )
    steps = {subject.label: subject.steps[0] for subject in subjects}
    caption = _caption(subjects)
    tables = {
        "without_a_block": _without(measured, steps),
        "random_depth": _random(measured, steps),
    }
    figures = {"lesion": draw_lesions(measured, caption)}
    return Findings(_short(measured, steps), tables, figures, [caption])


def draw_lesions(measured: dict[str, Lesions], caption: str) -> Figure:
    """Draw what each block and what random depth adds to the held-out loss, a line per run."""
    figure = empty_figure(caption, height=1.25 * PANEL_HEIGHT)
    ((alone, at_random),) = rows_of_panels(figure, (2,))
    label = "held-out loss, increase in nats"
    set_up(alone, "without one block", xlabel="block left out", ylabel=label)
    set_up(at_random, "random depth", xlabel="keep ratio theta of the last block", ylabel=label)
    for number, found in enumerate(measured.values()):
        style = {**line_style(number), "markersize": 4, "linewidth": 1.3}
        blocks = range(1, len(found.without) + 1)
        alone.plot(blocks, [loss - found.whole for loss in found.without], **style)
        shift = BESIDE * (number - (len(measured) - 1) / 2)
        places = [depth.keep_ratio + shift for depth in found.random]
        at_random.plot(places, [depth.loss - found.whole for depth in found.random], **style)
        ends = [[one - found.whole for one in (depth.low, depth.high)] for depth in found.random]
        at_random.vlines(places, *zip(*ends, strict=True), color=style["color"], linewidth=1.2)
    whole_ticks(alone)
    for axes in (alone, at_random):
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), None)
    legend_of_runs(at_random, list(measured))
    return figure


def _most_networks(num_layers: int) -> int:
    return 1 + num_layers + len(KEEP_RATIOS) * DRAWS


def _without(measured: dict[str, Lesions], steps: dict[str, int]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for run, found in measured.items():
        rows.append((run, steps[run], "none", found.whole, 0.0))
        rows += [
            (run, steps[run], block, loss, loss - found.whole)
            for block, loss in enumerate(found.without, 1)
        ]
    return Table(("run", "step", "block_left_out", "loss_nats", "increase_nats"), rows)


def _random(measured: dict[str, Lesions], steps: dict[str, int]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (run, steps[run], *depth, DRAWS)
        for run, found in measured.items()
        for depth in found.random
    ]
    columns = ("loss_nats", "low_nats", "high_nats", "mean_blocks", "draws")
    return Table(("run", "step", "keep_ratio", *columns), rows)


def _short(measured: dict[str, Lesions], steps: dict[str, int]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for run, found in measured.items():
        least, most = min(found.without), max(found.without)
        half = found.random[0]
        rows.append(
            (run, steps[run], found.whole, least - found.whole, most - found.whole)
            + (found.without.index(most) + 1, half.loss - found.whole)
        )
    half_name = f"random, theta {KEEP_RATIOS[0]}"
    columns = ("run", "step", "loss", "least costly block", "most costly", "which", half_name)
    return Table(columns, rows)


def _caption(subjects: Sequence[Subject]) -> str:
    named = ", ".join(
        f"{subject.label} ({subject.settings.model.norm} norm, layer drop "
        f"{subject.settings.layer_drop.schedule}) {when(subject.steps)}"
        for subject in subjects
    )
    return (
        f"{named}: held-out loss above that of the whole network. Left: without one block. Right: "
        "blocks dropped at random as PLD does with the keep ratio theta of the last block, "
        f"mean over {DRAWS} draws, which are the same for all runs, with a 95 % bootstrap interval."
    )
