"""docs/SPEED.md: which combinations work, which are refused and why."""

from pathlib import Path

from .cells import PRECISIONS, STAGES, all_cells, refusal

DOCUMENT = Path(__file__).parents[2] / "docs" / "SPEED.md"
BEGIN = "<!-- refusals begin: written by python -m tests.support_matrix.table -->"
END = "<!-- refusals end -->"


def support_table():
    """Return what the code refuses as a table.

    A stage with compiled blocks has a row of its own where something else is refused.

    Layer drop, recomputing, accumulation and objective must not change what is refused, else the
    table has too few dimensions.
    """
    notes, rows = [], {}
    for compiles in (False, True):
        for stage in STAGES:
            entries = []
            for precision in PRECISIONS:
                wanted = (stage, precision, compiles)
                (reason,) = {
                    refusal(cell)
                    for cell in all_cells(ranks=2)
                    if (cell.stage, cell.precision, cell.compiles) == wanted
                }
                if reason and reason not in notes:
                    notes.append(reason)
                entries.append(f"refused ({notes.index(reason) + 1})" if reason else "works")
            if not compiles or entries != rows[str(stage)]:
                rows[f"{stage}, compiled blocks" if compiles else str(stage)] = entries
    lines = [f"| ZeRO stage | {' | '.join(PRECISIONS)} |", "|---" * 6 + "|"]
    lines += [f"| {title} | {' | '.join(entries)} |" for title, entries in rows.items()]
    lines += [""] + [f"{number}. {note}" for number, note in enumerate(notes, start=1)]
    return "\n".join(lines)


def block(text):
    """Return what stands between the marks of the document."""
    return text.partition(BEGIN)[2].partition(END)[0].strip()


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{support_table()}\n{END}{rest.partition(END)[2]}")
