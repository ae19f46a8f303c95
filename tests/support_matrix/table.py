"""docs/SUPPORT.md: which combinations work, which are refused and why, and what was tried."""

import platform
from pathlib import Path

import torch

from .cells import HALF, PRECISIONS, STAGES, all_cells, refusal
from .trial import TOLERANCES

DOCUMENT = Path(__file__).parents[2] / "docs" / "SUPPORT.md"
BEGIN, END = "<!-- {} begin: written by python -m tests.support_matrix -->", "<!-- {} end -->"


def support_table(failed=()):
    """Return what the code refuses as a table, with the cells that were found not to work.

    Layer drop, recomputing, accumulation, objective and ranks must not change what is refused,
    else the table has too few dimensions.
    """
    notes, lines = [], []
    for compiles in (False, True):
        title = "with compiled blocks" if compiles else "ZeRO stage"
        lines += ["", f"| {title} | {' | '.join(PRECISIONS)} |", "|---" * 6 + "|"]
        for stage in STAGES:
            entries = []
            for precision in PRECISIONS:
                cells = [
                    cell
                    for cell in all_cells(ranks=1) + all_cells(ranks=2)
                    if (cell.stage, cell.precision, cell.compiles) == (stage, precision, compiles)
                ]
                (reason,) = {refusal(cell) for cell in cells}
                entries.append(_entry(reason, notes, any(cell in failed for cell in cells)))
            lines.append(f"| {stage} | {' | '.join(entries)} |")
    lines += [""] + [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
    return "\n".join(lines).strip()


def evidence_table(results):
    """Return what was tried here: `results` maps a cell to (loss, norm, weights) or None."""
    counts = {
        ranks: [c for c in results if c.ranks == ranks] for ranks in {c.ranks for c in results}
    }
    tried = "; ".join(
        f"{len(cells)} combinations on {ranks} rank{'s' * (ranks > 1)}, "
        f"{sum(cell.compiles for cell in cells)} of them compiled"
        for ranks, cells in sorted(counts.items())
    )
    lines = [
        f"Tried on {_device()}, torch {torch.__version__}: {tried}. Largest differences:",
        "",
        "| precision | combinations | loss | gradient norm | weights | allowed |",
        "|---|---|---|---|---|---|",
    ]
    for precision, limits in TOLERANCES.items():
        found = [v for cell, v in results.items() if cell.precision == precision and v is not None]
        if found:
            worst = " | ".join(f"{max(values):.1e}" for values in zip(*found, strict=True))
            allowed = ", ".join(f"{limit:.0e}" for limit in limits)
            lines.append(f"| {precision} | {len(found)} | {worst} | {allowed} |")
    return "\n".join(lines)


def block(name, text):
    """Return what stands between two marks of the document."""
    begin, end = BEGIN.format(name), END.format(name)
    return text[text.index(begin) + len(begin) : text.index(end)].strip()


def rewrite(name, content):
    """Put new content between two marks of the document."""
    text = DOCUMENT.read_text()
    begin, end = BEGIN.format(name), END.format(name)
    before, after = text[: text.index(begin)], text[text.index(end) :]
    DOCUMENT.write_text(f"{before}{begin}\n{content}\n{after}")


def _entry(reason, notes, is_broken):
    if is_broken:
        return "**fails**"
    if reason is None:
        return "works"
    if reason not in notes:
        notes.append(reason)
    return f"refused ({notes.index(reason) + 1})"


def _device():
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    names = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.processor()
    return f"a CPU ({name}), {HALF[1]} with DeepSpeed's device check switched off"


def _lines(file):
    return Path(file).read_text().splitlines() if Path(file).is_file() else []
