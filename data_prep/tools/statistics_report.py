"""Report the statistics of a shard folder: tables, JSON and a picture."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import ShardError, SplitName
from data_prep.tools.statistics import SplitCounts, SplitStatistics, ordinary_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURE_INCHES = (10.0, 3.0)
DOTS_PER_INCH = 200
COLOURS: dict[SplitName, str] = {"train": "#1f5a96", "valid": "#d1782c"}
NUM_BINS = 30
POINTS_PER_CURVE = 2000  # a vocabulary has more entries than the picture has pixels


def tables(statistics: dict[SplitName, SplitStatistics]) -> str:
    """Return the statistics as tables, a column for each split."""
    rows: list[tuple[str, Callable[[SplitStatistics], str]]] = [
        ("documents", lambda s: f"{s.documents:,}"),
        ("rows", lambda s: f"{s.rows:,}"),
        ("tokens", lambda s: f"{s.tokens:,}"),
        ("tokens in a document, mean", lambda s: f"{s.document_lengths.mean:,.1f}"),
        ("- smallest", lambda s: f"{s.document_lengths.minimum:,}"),
        ("- lower quartile", lambda s: f"{s.document_lengths.lower_quartile:,}"),
        ("- median", lambda s: f"{s.document_lengths.median:,}"),
        ("- upper quartile", lambda s: f"{s.document_lengths.upper_quartile:,}"),
        ("- largest", lambda s: f"{s.document_lengths.maximum:,}"),
        ("vocabulary that occurs", lambda s: f"{s.entries_seen / max(1, s.vocabulary):.2%}"),
        *(
            (
                f"- entries that occur fewer than {limit} times",
                lambda s, limit=limit: f"{s.entries_below[limit]:,} of {s.vocabulary:,}",
            )
            for limit in next(iter(statistics.values())).entries_below
        ),
        ("tokens that are unknown", lambda s: _known(s.unknown_share, ".4%")),
        ("words of a single piece", lambda s: _known(s.single_piece_share, ".2%")),
        ("tokens per word of the text", lambda s: _known(s.tokens_per_word, ".3f")),
    ]
    body = [[title, *(value(split) for split in statistics.values())] for title, value in rows]
    numbers = tabulate(body, headers=["", *statistics], colalign=_aligned(len(statistics)))
    return f"{numbers}\n\n{_frequent(statistics)}"


def write_json(statistics: dict[SplitName, SplitStatistics], shards: ShardSet, file: Path) -> None:
    """Write the statistics as JSON.

    Raises:
        ShardError: The file cannot be written.
    """
    content = {
        "folder": str(shards.folder),
        "sequence_length": shards.manifest.sequence_length,
        "tokenizer_sha256": shards.manifest.tokenizer.sha256,
        "splits": {name: split.model_dump() for name, split in statistics.items()},
    }
    try:
        file.write_text(json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise _unwritable(file, error, "--json") from error


def draw(counts: dict[SplitName, SplitCounts], shards: ShardSet, file: Path) -> None:
    """Draw document lengths, token frequencies by rank, and the coverage by entries.

    Raises:
        ShardError: The file cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {
        "lines.linewidth": 1.3,
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with pyplot.rc_context(style):
        figure, (lengths, frequencies, coverage) = pyplot.subplots(
            1, 3, figsize=FIGURE_INCHES, layout="constrained"
        )
        _draw_lengths(lengths, counts)
        _draw_frequencies(frequencies, coverage, counts, shards)
        try:
            # The format is PNG whatever the name; no date, so that equal rows give equal bytes.
            figure.savefig(file, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        except OSError as error:
            raise _unwritable(file, error, "--picture") from error
        finally:
            pyplot.close(figure)


def _draw_lengths(axes: "Axes", counts: dict[SplitName, SplitCounts]) -> None:
    edges = _length_edges(counts.values())
    for name, split in counts.items():
        percent = 100 * split.documents / split.documents.sum()
        heights, _ = np.histogram(np.maximum(split.lengths, 1), edges, weights=percent)
        if name == "train":
            axes.stairs(heights, edges, color=COLOURS[name], fill=True, alpha=0.8, label=name)
        else:
            axes.stairs(heights, edges, color=COLOURS[name], linewidth=1.3, label=name)
    axes.set(xscale="log", xlabel="document length (tokens)", ylabel="documents (%)")
    axes.legend(frameon=False)


def _draw_frequencies(
    frequencies: "Axes", coverage: "Axes", counts: dict[SplitName, SplitCounts], shards: ShardSet
) -> None:
    """Draw frequency and cumulative frequency of the entries by rank."""
    for name, split in counts.items():
        descending = np.sort(ordinary_counts(split.tokens, shards.manifest.tokenizer))[::-1]
        descending = descending[descending > 0]
        ranks = _places(len(descending))
        shares = descending / descending.sum()
        frequencies.plot(ranks, shares[ranks - 1], color=COLOURS[name])
        coverage.plot(ranks, 100 * np.cumsum(shares)[ranks - 1], color=COLOURS[name])
    frequencies.set(xscale="log", yscale="log")
    frequencies.set(xlabel="rank of the entry", ylabel="share of the tokens")
    coverage.set(xscale="log", ylim=(0, 102))
    coverage.set(xlabel="number of most frequent entries", ylabel="tokens covered (%)")


def _length_edges(splits: Iterable[SplitCounts]) -> NDArray[np.int64]:
    """Return the edges of bins that are about equally wide on a log axis.

    They are whole numbers: otherwise some bins of short lengths would be empty or count double.
    """
    occurring = np.concatenate([split.lengths for split in splits])
    smallest, largest = max(1, occurring.min()), max(1, occurring.max())
    edges = np.unique(np.geomspace(smallest, largest + 1, NUM_BINS + 1).round().astype(np.int64))
    return np.append(edges, edges[-1] + 1)


def _places(count: int) -> NDArray[np.int64]:
    """Return ranks from 1 to count, evenly spread on a log axis."""
    return np.unique(np.geomspace(1, max(1, count), POINTS_PER_CURVE).astype(np.int64))


def _frequent(statistics: dict[SplitName, SplitStatistics]) -> str:
    rows = []
    for place in range(max(len(split.most_frequent) for split in statistics.values())):
        row: list[object] = [place + 1]
        for split in statistics.values():
            row += _cell(split, place)
        rows.append(row)
    headers = ["rank", *(text for name in statistics for text in (name, "share"))]
    return tabulate(rows, headers=headers, disable_numparse=True)


def _cell(split: SplitStatistics, place: int) -> Sequence[str]:
    if place >= len(split.most_frequent):
        return ("", "")
    token, count = split.most_frequent[place]
    return (repr(token)[1:-1], f"{count / split.tokens:.2%}")


def _known(value: float | None, form: str) -> str:
    return "not known" if value is None else format(value, form)


def _aligned(num_splits: int) -> list[str]:
    return ["left", *["right"] * num_splits]


def _unwritable(file: Path, error: OSError, option: str) -> ShardError:
    return ShardError(
        f"{file}: cannot be written ({error.strerror}); name another file with {option}"
    )
