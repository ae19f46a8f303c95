"""The report of a comparison: pictures, one self-contained page, and the numbers as JSON."""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from pretrain.compare.convergence import AXES, Arm, Comparison, Run, crossing, differing_settings
from pretrain.compare.html import COLOURS, Picture, as_written, empty_axes, render_page
from pretrain.compare.tables import (
    amount,
    provenance_headers,
    provenance_rows,
    run_headers,
    run_rows,
    run_speed,
    speed_headers,
    speed_rows,
    table_headers,
    table_rows,
)
from pretrain.config.errors import ConfigError

AXIS_LABELS = {
    "step": "optimizer steps",
    "tokens": "tokens",
    "training_seconds": "training time in seconds",
    "flops": "FLOPs",
}
Series = Callable[[Run], tuple[list[float], list[float]]]


def write_report(comparison: Comparison, folder: Path) -> None:
    """Write index.html, comparison.json and the pictures.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        numbers = json.dumps(_numbers(comparison), indent=1) + "\n"
        (folder / "comparison.json").write_text(numbers)
        pictures = draw_pictures(comparison, folder)
        (folder / "index.html").write_text(_page(comparison, pictures), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write the report to {folder}: {error.strerror}; choose another --report"
        ) from None


def draw_pictures(comparison: Comparison, folder: Path) -> list[Picture]:
    """Draw the held-out loss over every axis, then training loss, learning rate and layer drop."""
    arms = comparison.arms
    pictures = [
        *(_draw_held_out_loss(comparison, axis, folder) for axis in AXES),
        _draw_metric(arms, "training loss in nats", "loss", folder / "training_loss.png"),
        _draw_metric(arms, "learning rate", "learning_rate", folder / "learning_rate.png"),
    ]
    dropping = [
        arm
        for arm in arms
        if arm.runs[0].settings["layer_drop.schedule"] != "none" and arm.runs[0].metrics
    ]
    for number, arm in enumerate(dropping, 1):
        pictures.append(_draw_keep_rates(arm, folder / f"layer_drop_{number}.png"))
    return pictures


def _draw_held_out_loss(comparison: Comparison, axis: str, folder: Path) -> Picture:
    figure, axes = empty_axes()
    axes.axhline(comparison.target, color="0.5", linewidth=0.8, linestyle="--")
    axes.annotate(
        f"target {comparison.target:.3f}",
        (0, comparison.target),  # below the line on the left: every curve comes from above
        xycoords=("axes fraction", "data"),
        xytext=(4, -4),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color="0.35",
    )
    _draw_arms(axes, comparison.arms, lambda run: _column(run.evaluations, axis, "loss"))
    for arm, colour in zip(comparison.arms, _colours(comparison.arms), strict=True):
        for run in arm.runs:
            place = crossing(run, comparison.target, axis)
            if place is not None and len(arm.runs) > 1:
                axes.plot(place, comparison.target, "|", color=colour, markersize=12, zorder=4)
        reached = comparison.reached(arm, axis)
        if reached is not None:
            axes.plot(reached, comparison.target, "o", color=colour, markersize=7, zorder=5)
    title = f"Held-out loss over {AXIS_LABELS[axis]}"
    axes.set(xlabel=AXIS_LABELS[axis], ylabel="held-out loss in nats", title=title)
    if axis in ("tokens", "flops"):
        axes.xaxis.set_major_formatter(EngFormatter())
    axes.legend(frameon=False)
    return _save(figure, title, folder / f"held_out_loss_over_{axis}.png")


def _draw_metric(arms: Sequence[Arm], label: str, key: str, file: Path) -> Picture:
    figure, axes = empty_axes()
    _draw_arms(axes, arms, lambda run: _column(run.metrics, "step", key))
    title = f"{label.partition(' in ')[0].capitalize()} over optimizer steps"
    axes.set(xlabel="optimizer steps", ylabel=label, title=title)
    axes.legend(frameon=False)
    return _save(figure, title, file)


def _draw_keep_rates(arm: Arm, file: Path) -> Picture:
    """Draw theta and, per block, the share of micro-batches that ran it since the last line."""
    figure, axes = empty_axes()
    run = arm.runs[0]
    steps = [row["step"] for row in run.metrics]
    num_layers = len(run.metrics[0]["keep_rates"])
    for layer in range(num_layers):
        rates = [row["keep_rates"][layer] for row in run.metrics]
        shade = colormaps["viridis"](layer / num_layers)  # by depth: early dark, late light
        axes.plot(steps, rates, color=shade, linewidth=0.8, label=f"block {layer + 1}")
    thetas = [row["theta"] for row in run.metrics]
    axes.plot(steps, thetas, color="black", linewidth=1.8, label="theta")
    title = f"Blocks kept by {arm.name}, seed {run.settings['seed']}"
    axes.set(
        xlabel="optimizer steps",
        ylabel="share of micro-batches",
        title=as_written(title),
        ylim=(0, 1.03),
    )
    axes.legend(frameon=False, ncols=2 if num_layers < 8 else 4, fontsize=8)
    return _save(figure, title, file)


def _draw_arms(axes: Axes, arms: Sequence[Arm], series: Series) -> None:
    """Draw one bold line per arm: the median of its runs, which are thin lines below it."""
    for arm, colour in zip(arms, _colours(arms), strict=True):
        lines = [series(run) for run in arm.runs]
        if len(lines) > 1:
            for x, y in lines:
                axes.plot(x, y, color=colour, linewidth=0.6, alpha=0.5)
        shortest = min(len(x) for x, _ in lines)
        x = [statistics.median(line[0][place] for line in lines) for place in range(shortest)]
        y = [statistics.median(line[1][place] for line in lines) for place in range(shortest)]
        axes.plot(x, y, color=colour, linewidth=1.8, label=as_written(arm.name))


def _colours(arms: Sequence[Arm]) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(len(arms))]


def _column(rows: Sequence[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    return [row[x] for row in rows], [row[y] for row in rows]


def _save(figure: Figure, title: str, file: Path) -> Picture:
    figure.savefig(file)
    return Picture(title, file)


def _page(comparison: Comparison, pictures: Sequence[Picture]) -> str:
    baseline = comparison.arms[0].name
    settings = differing_settings(comparison.arms)
    return render_page(
        Path(__file__).with_name("report.html.j2"),
        pictures,
        title=" against ".join(
            filter(None, [baseline, ", ".join(arm.name for arm in comparison.arms[1:])])
        ),
        summary=_summary(comparison),
        target=f"{comparison.target:.3f} nats",
        headers=table_headers(comparison),
        rows=table_rows(comparison),
        run_headers=run_headers(comparison),
        run_rows=run_rows(comparison),
        speed_headers=speed_headers(),
        speed_rows=speed_rows(comparison),
        notes=comparison.notes,
        setting_headers=["setting", *(arm.name for arm in comparison.arms)],
        setting_rows=[[name, *values] for name, values in settings.items()],
        arms=[(arm.name, provenance_headers(arm), provenance_rows(arm)) for arm in comparison.arms],
        provenance=_provenance(comparison),
    )


def _summary(comparison: Comparison) -> list[str]:
    """Return what was compared and the result, as sentences."""
    baseline = comparison.arms[0]
    first = baseline.runs[0]
    runs = [run for arm in comparison.arms for run in arm.runs]
    launches = [launch for run in runs for launch in run.launches]
    corpora = [run.launches[0]["source"] for run in runs]
    sentences = [
        f"{len(runs)} runs of {len(comparison.arms)} settings, trained on {_each(corpora)}, on "
        f"{_each([launch['device'] for launch in launches])}, with the code of commit "
        f"{_each([launch['commit'] for launch in launches])}; the baseline is {baseline.name}.",
        f"{baseline.name} saw "
        f"{amount(first.evaluations[-1]['tokens'], 'tokens')} tokens in "
        f"{first.evaluations[-1]['step']:,} steps and ended with a held-out loss of "
        f"{statistics.median(run.final_loss for run in baseline.runs):.3f} nats.",
    ]
    for arm in comparison.arms[1:]:
        steps, seconds = (comparison.speed_up(arm, axis) for axis in ("step", "training_seconds"))
        if steps is None or seconds is None:
            sentences.append(f"{arm.name}: no speed-up can be given; see the notes.")
            continue
        sentences.append(
            f"{arm.name} needed {1 / steps:.0%} of the baseline's steps and {1 / seconds:.0%} of "
            f"its training time to reach {comparison.target:.3f}: {seconds:.2f} times as fast."
        )
    return sentences


def _each(values: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(values))


def _provenance(comparison: Comparison) -> list[str]:
    lines = []
    for arm in comparison.arms:
        for run in arm.runs:
            launch = run.launches[-1]
            versions = ", ".join(f"{name} {number}" for name, number in launch["versions"].items())
            lines.append(
                f"{run.folder}: {launch['world_size']} rank(s) on {launch['device']}, commit "
                f"{launch['commit']}, {versions}, started {run.launches[0]['at']}"
            )
    return lines


def _numbers(comparison: Comparison) -> dict[str, Any]:
    return {
        "target": comparison.target,
        "notes": comparison.notes,
        "arms": [
            {
                "name": arm.name,
                "to_target": {axis: comparison.reached(arm, axis) for axis in AXES},
                "speed_up": {axis: comparison.speed_up(arm, axis) for axis in AXES},
                "runs": [
                    {
                        "folder": str(run.folder),
                        "seed": run.settings["seed"],
                        "final_held_out_loss": run.final_loss,
                        "best_held_out_loss": run.best_loss,
                        "to_target": {
                            axis: crossing(run, comparison.target, axis) for axis in AXES
                        },
                        "speed": run_speed(run),
                        "evaluations": run.evaluations,
                    }
                    for run in arm.runs
                ],
            }
            for arm in comparison.arms
        ],
    }
