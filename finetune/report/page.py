"""A table of scores as files: Markdown, CSV, LaTeX, pictures, and a self-contained page."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.files.atomic import save_text
from finetune.report.axes import STEPS
from finetune.report.caption import caption
from finetune.report.entries import entries, headers
from finetune.report.figures import PictureGroup, draw_figures
from finetune.report.notes import notes
from finetune.report.score_table import ScoreTable, score_table
from finetune.report.text import as_csv, as_latex, as_markdown, as_text, rate_rows
from finetune.results.sweep_results import read_sweep_results
from pretrain.reports.html import render_page
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.terminal import paragraph, terminal_width


def write_table(table: ScoreTable, notes: Sequence[str], folder: ReportFolder) -> None:
    """Write table.md, table.csv, table.tex, index.html, and the pictures in figures/.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.
    """
    with folder.writing() as place:
        save_text(place / "table.md", as_markdown(table, notes))
        save_text(place / "table.csv", as_csv(table))
        save_text(place / "table.tex", as_latex(table, notes))
        groups = draw_figures(table, place / "figures")
        save_text(place / "index.html", _page(table, notes, groups))


def _page(table: ScoreTable, notes: Sequence[str], groups: Sequence[PictureGroup]) -> str:
    rate_headers, rates = rate_rows(table)
    ends = [sum(len(group.pictures) for group in groups[: n + 1]) for n in range(len(groups))]
    return render_page(
        Path(__file__).with_name("score_page.html.j2"),
        [picture for group in groups for picture in group.pictures],
        title="Scores of fine-tuning",
        headers=headers(table),
        entries=entries(table),
        caption=caption(table),
        notes=notes,
        groups=[
            {
                "heading": group.heading,
                "text": group.text,
                "first": end - len(group.pictures),
                "last": end,
            }
            for group, end in zip(groups, ends, strict=True)
        ],
        rate_headers=rate_headers,
        rate_rows=rates,
        provenance=[
            f"{table.label(row)}: weights from {row.origin}"
            + ("" if row.step is None else f", step {row.step:,}")
            for row in table.rows
            if row.origin
        ],
    )


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
        to: a folder for the files; see `ReportFolder`.
        average: see `score_table`.
        step: see `score_table`.
        axis: see `score_table`.

    Raises:
        ConfigError: see `read_sweep_results`, `score_table` and `write_table`.
    """
    results = read_sweep_results(folders)
    table = score_table(results, average, step, axis)
    remarks = notes(table, results)
    if to is not None:
        folder = ReportFolder(to, "a table of scores", "--to")
        folder.refuse_if_taken()
    width = terminal_width()
    print(as_text(table, width))
    print("\n" + paragraph(caption(table), width))
    for remark in remarks:
        print(paragraph(remark, width, first="note: ", rest="      "))
    if to is not None:
        write_table(table, remarks, folder)
        print(f"table: {to / 'index.html'}")
