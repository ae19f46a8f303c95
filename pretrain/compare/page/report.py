"""The report of a comparison: pictures, one self-contained page, and the numbers as JSON."""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

from pretrain.compare.convergence import AXES, Comparison
from pretrain.compare.headline import headline
from pretrain.compare.page.pictures import Pictures, draw_pictures
from pretrain.compare.pairs import Interval, Pair
from pretrain.compare.run_tables import (
    commands,
    provenance_table,
    run_speed,
    share_table,
    speed_table,
)
from pretrain.compare.runs import crossing, differing_settings
from pretrain.compare.tables import Table, result_tables, run_table
from pretrain.reports.html import render_page
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.words import listed


def write_report(comparison: Comparison, folder: ReportFolder) -> None:
    """Write index.html, comparison.json and the pictures.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.
    """
    with folder.writing() as place:
        numbers = json.dumps(_finite(_numbers(comparison)), indent=1, allow_nan=False) + "\n"
        (place / "comparison.json").write_text(numbers)
        pictures = draw_pictures(comparison, place)
        (place / "index.html").write_text(_page(comparison, pictures), encoding="utf-8")


def _page(comparison: Comparison, pictures: Pictures) -> str:
    arms = comparison.arms
    settings = differing_settings(arms)
    names = ", ".join(arm.name for arm in arms[1:])
    runs = run_table(comparison)
    parts = [[pictures.main], pictures.axes, pictures.time, pictures.training]
    ends = list(itertools.accumulate(map(len, parts)))
    return render_page(
        Path(__file__).with_name("report.html.j2"),
        list(itertools.chain(*parts)),
        ends=ends,
        title=f"{names} against {arms[0].name}" if names else arms[0].name,
        headline=headline(comparison),
        tables=result_tables(comparison),
        runs=runs if len(runs.rows) > len(arms) else None,
        notes=comparison.notes,
        has_time=not comparison.reasons_against_seconds,
        speed=speed_table(comparison),
        shares=share_table(comparison),
        settings=Table(
            "Every setting that differs",
            ["setting", *(arm.name for arm in arms)],
            [[name, *map(str, values)] for name, values in settings.items()],
        ),
        commands={arm.name: commands(arm) for arm in arms},
        launches=[provenance_table(arm) for arm in arms],
        provenance=[_trained_on(comparison)],
    )


def _trained_on(comparison: Comparison) -> str:
    runs = [run for arm in comparison.arms for run in arm.runs]
    launches = [launch for run in runs for launch in run.launches]
    corpora = dict.fromkeys(run.launches[0]["source"] for run in runs)
    devices = dict.fromkeys(launch["device"] for launch in launches)
    commits = dict.fromkeys(launch["commit"] for launch in launches)
    return (
        f"Trained on {listed([*corpora])}, on {listed([*devices])}, with the code of commit "
        f"{listed([*commits])}."
    )


def _numbers(comparison: Comparison) -> dict[str, Any]:
    return {
        "target": comparison.target,
        "frequency_entropy": comparison.entropy,
        "plateau_end": comparison.plateau_end,
        "headline": headline(comparison),
        "notes": comparison.notes,
        "time_is_comparable": not comparison.reasons_against_seconds,
        "arms": [
            {
                "name": arm.name,
                "to_target": {axis: comparison.reached(arm, axis) for axis in AXES},
                "left_plateau": {axis: comparison.left_plateau(arm, axis) for axis in AXES},
                "after_plateau": {axis: comparison.after_plateau(arm, axis) for axis in AXES},
                "bootstrap_at_end": list(arm.bootstrap_at_end) if len(arm.runs) > 1 else None,
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
        "pairs": [_numbers_of_pair(comparison, pair) for pair in comparison.pairs],
    }


def _numbers_of_pair(comparison: Comparison, pair: Pair) -> dict[str, Any]:
    has_ends = comparison.has_comparable_ends(pair)
    shares = {axis: comparison.share(pair, axis) for axis in AXES}
    return {
        "arm": pair.arm.name,
        "against": pair.against.name,
        "differing_settings": pair.differing,
        "share": shares,
        "share_by_seed": {
            axis: _numbers_of(comparison.paired_share(pair, axis) if share else None)
            for axis, share in shares.items()
        },
        "verdict": {axis: comparison.verdict(pair, axis) for axis in comparison.axes},
        "difference_at_end": pair.difference_at_end if has_ends else None,
        "difference_at_end_by_seed": _numbers_of(
            pair.paired_difference_at_end if has_ends else None
        ),
        "bootstrap_at_end": list(pair.bootstrap_at_end or ()) if has_ends else None,
        "verdict_at_end": pair.verdict_at_end if has_ends else None,
        "significance_at_end": pair.significance_at_end if has_ends else None,
    }


def _numbers_of(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else dataclasses.asdict(interval)


def _finite(value: Any) -> Any:
    """Return the numbers with None for those that are infinite or NaN, which JSON lacks."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
