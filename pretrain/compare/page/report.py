"""The report of a comparison: figures, one self-contained page, the table as files."""

from pathlib import Path

from pretrain.compare.convergence import Comparison
from pretrain.compare.page.pictures import WIDE, draw_main, draw_over
from pretrain.compare.pairs import CONFIDENCE
from pretrain.compare.runs import PLATEAU_MARGIN
from pretrain.compare.tables import (
    launch_table,
    report_of,
    run_table,
    settings_table,
    speed_table,
)
from pretrain.reports.html import WIDTH, save_picture
from pretrain.reports.report import Gallery, Picture
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.words import listed

METHOD = f"""The held-out loss is the cross-entropy of the predicted tokens in nats, over the same
held-out sequences with the same masks for every run, at full depth and without dropout. Time is
the time spent in training steps: reading data, forward, backward and the optimizer, on this
machine; evaluation and checkpoints are not in it. Tokens/s are all tokens over all of this time.
FLOPs are those of the matrix products that were computed: a skipped block counts nothing, and the
head counts the predicted positions only. Utilisation is the share of these FLOPs in what the
devices could have computed in the same time: on a GPU its datasheet's dense rate, elsewhere the
rate of a large matrix product, measured when the run started. A run waits for a processor where
other work of the machine has them all. Where a run passes the target between two evaluations, the
place is interpolated linearly. Steps below entropy last until the loss is {PLATEAU_MARGIN:g} nats
below the unigram entropy. Where an arm has several seeds, numbers and bold lines are medians over
them, in which a run that never reached the target counts as later than all that did; thin lines
and ticks are the runs. Arms of the same seeds are compared with the baseline seed by seed (sign
test), others by the test of Mann and Whitney; significant means at {CONFIDENCE:.0%}. A percentage
is the share of what the baseline needed. Nothing is smoothed."""


def write_report(comparison: Comparison, folder: ReportFolder) -> None:
    """Write index.html, table.csv, table.md, table.tex and the figures.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.
    """
    with folder.writing() as place:
        main, *others = draw_pictures(comparison, place)
        report_of(comparison).write(
            place,
            main=main,
            galleries=[Gallery("At equal cost", "", others)],
            details=[
                run_table(comparison),
                speed_table(comparison),
                settings_table(comparison.arms),
                launch_table(comparison),
            ],
            method=METHOD,
            provenance=[_trained_on(comparison)],
        )


def draw_pictures(comparison: Comparison, folder: Path) -> list[Picture]:
    """Write figures as PNG and SVG: the held-out loss over steps, FLOPs and comparable seconds."""
    main = save_picture(
        draw_main(comparison, width=WIDE),
        "Held-out loss over steps, and the steps of each arm on the plateau and after it",
        folder / "held_out_loss_over_step",
        narrow=draw_main(comparison, width=WIDTH),
    )
    others = []
    for axis in ("flops", "training_seconds"):
        if axis in comparison.axes:
            figure, title = draw_over(comparison, axis)
            others.append(save_picture(figure, title, folder / f"held_out_loss_over_{axis}"))
    return [main, *others]


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
