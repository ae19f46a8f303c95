"""docs/SPEED.md: which combinations work, which are refused and why."""

from pathlib import Path

from .cells import PRECISIONS, STAGES, all_cells, refusal

DOCUMENT = Path(__file__).parents[2] / "docs" / "SPEED.md"
BEGIN = "<!-- refusals begin: written by python -m tests.support_matrix -->"
END = "<!-- refusals end -->"


def support_table(failed=()):
    """Return what the code refuses as a table, with the cells that were found not to work.

    A stage with compiled blocks has a row of its own where something else is refused.

    Layer drop, recomputing, accumulation, objective and ranks must not change what is refused,
    else the table has too few dimensions.
    """
    notes, rows = [], {}
    for compiles in (False, True):
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
            if not compiles or entries != rows[str(stage)]:
                rows[f"{stage}, compiled blocks" if compiles else str(stage)] = entries
    lines = [f"| ZeRO stage | {' | '.join(PRECISIONS)} |", "|---" * 6 + "|"]
    lines += [f"| {title} | {' | '.join(entries)} |" for title, entries in rows.items()]
    lines += [""] + [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
    return "\n".join(lines)


def block(text):
    """Return what stands between the marks of the document."""
    return text.partition(BEGIN)[2].partition(END)[0].strip()


def rewrite(content):
    """Put new content between the marks of the document."""
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{content}\n{END}{rest.partition(END)[2]}")


def _entry(reason, notes, is_broken):
    if is_broken:
        return "**fails**"
    if reason is None:
        return "works"
    if reason not in notes:
        notes.append(reason)
    return f"refused ({notes.index(reason) + 1})"
