"""What a comparison found, in two sentences."""

from pretrain.compare.convergence import Comparison


def finding(comparison: Comparison) -> list[str]:
    """Return two plain sentences: what was found between the arms that matter, and its limits."""
    from pretrain.compare.headline import headline

    return headline(comparison)[-2:]
