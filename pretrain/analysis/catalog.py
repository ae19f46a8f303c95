"""The analyses by name; a new one is a module of its name with `findings(subjects)`, and a line.

Imports no torch: the help of the command lists the names.
"""

from typing import NamedTuple


class Analysis(NamedTuple):
    """One way to look into runs."""

    summary: str  # what it measures, in a line
    over_training: bool = False  # looks at all checkpoints, not at the newest one only
    reads_rows: bool = True  # not weights alone


ANALYSES = {
    "positions": Analysis(
        "learned positional correlations and the pattern of each head", reads_rows=False
    ),
    "gradients": Analysis("gradients of the weights and the states of each block", True),
    "layers": Analysis("how much each block changes its input, and the mean of the change", True),
    "terms": Analysis("word and position correlations in the scores of BERT-A"),
}
