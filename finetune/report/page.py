"""A table of scores as files: Markdown, CSV, LaTeX, pictures, and a self-contained page."""

from collections.abc import Sequence
from pathlib import Path

from data_prep.files.atomic import save_text
from finetune.report.figures import PictureGroup, draw_figures
from finetune.report.notes import notes
from finetune.report.score_table import ScoreTable, score_table
from finetune.report.text import (
    as_csv,
    as_latex,
    as_markdown,
    as_text,
    caption,
    entries,
    headers,
    rate_rows,
)
from finetune.results.sweep_results import read_sweep_results
from pretrain.compare.html import render_page
from pretrain.config.errors import ConfigError


def write_table(table: ScoreTable, notes: Sequence[str], folder: Path) -> None:
    """Write table.md, table.csv, table.tex, index.html, and the pictures in figures/.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_text(folder / "table.md", as_markdown(table, notes))
        save_text(folder / "table.csv", as_csv(table))
        save_text(folder / "table.tex", as_latex(table, notes))
        groups = draw_figures(table, folder / "figures")
        save_text(folder / "index.html", _page(table, notes, groups))
    except OSError as error:
        raise ConfigError(
            f"cannot write the table to {folder}: {error.strerror}; choose another --to"
        ) from None


def _page(table: ScoreTable, notes: Sequence[str], groups: Sequence[PictureGroup]) -> str:
    rate_headers, rates = rate_rows(table)
    ends = [sum(len(group.pictures) for group in groups[: n + 1]) for n in range(len(groups))]
    rows = [row for row in table.rows if row.origin]
    names = dict.fromkeys(table.label(row) for row in rows if row.pretrained or len(rows) == 1)
    tasks = list(dict.fromkeys(column.task for column in table.columns))
    what = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    return render_page(
        Path(__file__).with_name("score_page.html.j2"),
        [picture for group in groups for picture in group.pictures],
        title=f"{', '.join(names)}: fine-tuned on {what}",
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
            for row in rows
        ],
    )


def print_table(
    folders: Sequence[Path],
    *,
    to: Path | None = None,
    average: str | None = None,
    step: str = "newest",
) -> None:
    """Print the table of these folders and remarks on it; write it to the folder `to`.

    Raises:
        ConfigError: see `read_sweep_results`, `score_table` and `write_table`.
    """
    results = read_sweep_results(folders)
    table = score_table(results, average, step)
    remarks = notes(table, results)
    print(as_text(table))
    print(caption(table))
    for remark in remarks:
        print(f"note: {remark}")
    if to is not None:
        write_table(table, remarks, to)
        print(f"table: {to / 'index.html'}")
