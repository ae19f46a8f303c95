"""A table of scores printed, and as files: Markdown, CSV, LaTeX, figures, and a page."""

from collections.abc import Sequence
from pathlib import Path

from finetune.report.axes import STEPS
from finetune.report.entries import rate_table, report_of
from finetune.report.figures import draw_figures
from finetune.report.notes import notes
from finetune.report.score_table import score_table
from finetune.results.sweep_results import read_sweep_results
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.terminal import terminal_width

METHOD = """Each model is fine-tuned on each task with every learning rate and every seed, and
scored on the development set after the last epoch, not after the best one. The score of a
learning rate is the median over the seeds, and the score of the model is that of the rate with
the best median (TUPE, Sec. 4.1); with several development sets, the best mean over them. The rate
is chosen on the set that is reported: scores are slightly higher than on new text, for all models
alike. A seed that diverged counts as worse than any score; a seed that failed, for example for
lack of memory, is left out of the median. The majority class predicts the most frequent training
label, or the mean of the training values, for every example."""


def print_table(
    folders: Sequence[Path],
    *,
    to: Path | None = None,
    average: str | None = None,
    step: str = "newest",
    axis: str = STEPS,
) -> None:
    """Print the table of these folders and remarks on it; write it to the folder `to`.

    Args:
        folders: runs or sweeps.
        to: a folder for table.md, table.csv, table.tex, index.html and figures; see `ReportFolder`.
        average: see `score_table`.
        step: see `score_table`.
        axis: see `score_table`.

    Raises:
        ConfigError: see `read_sweep_results` and `score_table`; the folder holds something else, or
            cannot be written.
    """
    results = read_sweep_results(folders)
    table = score_table(results, average, step, axis)
    report = report_of(table, notes(table, results))
    folder = ReportFolder(to or Path(), "a table of scores", "--to")
    if to is not None:
        folder.refuse_if_taken()
    print(report.as_text(terminal_width()))
    if to is None:
        return
    with folder.writing() as place:
        report.write(
            place,
            galleries=draw_figures(table, place / "figures"),
            details=[rate_table(table)],
            method=METHOD,
            provenance=[
                f"{table.label(row)}: weights from {row.origin}"
                + ("" if row.step is None else f", step {row.step:,}")
                for row in table.rows
                if row.origin
            ],
        )
    print(f"table: {to / 'index.html'}")
