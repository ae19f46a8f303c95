"""The analyses by name. A new one is a module with a function `findings`, and a line here.

Imports no torch: the help of the command lists the names.
"""

from typing import NamedTuple


class Analysis(NamedTuple):
    """One way to look into runs."""

    module: str  # with findings(subjects); imported when it is used
    summary: str  # what it measures, in a line
    over_training: bool = False  # looks at all checkpoints, not at the newest one only
    reads_rows: bool = True  # not weights alone


_POSITIONS = "learned positional correlations and the pattern of each head"
_LAYERS = "how much each block changes its input, and the mean of the change"
ANALYSES = {
    "positions": Analysis("pretrain.analysis.positions", _POSITIONS, reads_rows=False),
    "gradients": Analysis(
        "pretrain.analysis.gradients", "gradients of the weights and the states of each block", True
    ),
    "layers": Analysis("pretrain.analysis.layers", _LAYERS, True),
    "terms": Analysis(
        "pretrain.analysis.terms", "word and position correlations in the scores of BERT-A"
    ),
}
