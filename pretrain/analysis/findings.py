"""What an analysis found: tables and figures, and how they are written."""

from typing import Any, NamedTuple

from matplotlib.figure import Figure

from data_prep.files.atomic import save_text
from pretrain.reports.report_folder import ReportFolder
from pretrain.reports.table import as_csv

# By the names of the columns, which end in a unit where there is one.
Record = dict[str, Any]  # str, int or float


class Findings(NamedTuple):
    """The result of an analysis.

    Attributes:
        tables: by name of their CSV file, without its ending.
        figures: by name of their PNG file, without its ending.
    """

    tables: dict[str, list[Record]]
    figures: dict[str, Figure]


def write_findings(findings: Findings, folder: ReportFolder) -> None:
    """Write figures as PNG, and tables as CSV with seven digits.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.
    """
    with folder.writing() as place:
        for name, records in findings.tables.items():
            written = [
                {n: f"{one:.7g}" if isinstance(one, float) else one for n, one in record.items()}
                for record in records
            ]
            save_text(place / f"{name}.csv", as_csv(written))
        for name, figure in findings.figures.items():
            # Without its version in the file, a picture is a function of what it shows.
            figure.savefig(place / f"{name}.png", metadata={"Software": None})
