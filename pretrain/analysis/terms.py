"""The share of each correlation of TUPE Eq. 6 in the scores of encoders that add p to the words.

Eq. 6 expands a score of the first block, ((w_i + p_i) W^Q)((w_j + p_j) W^K)^T / sqrt(d), into
word-word, word-position, position-word and position-position; the query is named first. A norm and
biases stand between the sum and the score, so a fifth term remains, "constant": what has biases in
the query or in the key. BERT-R has b_{j-i} besides. What is the same for all keys of a query is
left out: softmax ignores it.

The parts are exact. The input of the block is the sum of a word's and a position's vector after
one LayerNorm (two for PreLN), and for a given token a LayerNorm is linear: with the mean and the
standard deviation of the whole sum, each summand is centred and scaled by itself. What the biases
of the norms add is the constant. Deeper blocks mix words and positions: Eq. 6 is not defined there.

The size of a term is its variance over the keys of a query, mean over rows and queries. Its share
is that of the sum of the variances of all terms.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from torch import Tensor, nn

from pretrain.analysis.panels import PANEL_HEIGHT, Findings, empty_figure, rows_of_panels
from pretrain.analysis.subjects import Subject, encoder_inputs, measured_at_steps
from pretrain.config.errors import ConfigError
from pretrain.data.batches import MaskedBatch
from pretrain.model.attention import Attention
from pretrain.model.blocks import Block
from pretrain.model.encoder import Encoder
from pretrain.model.objectives.objective import Objective
from pretrain.model.positions import POSITION_ENCODINGS, BertAbsolute
from pretrain.reports.html import COLOURS, INK, as_written

TERMS = (
    *("word-word", "word-position", "position-word", "position-position"),
    *("constant", "relative"),
)
LEGEND = 0.4  # inches
# Of the terms in their order; hatches distinguish them in black and white too.
FACES = (COLOURS[5], COLOURS[4], COLOURS[3], "#8fd1bd", "#cccccc", "#ffffff")
HATCHES = ("", "///", "\\\\\\", "", "...", "xxx")
CAPTION = (
    "On held-out sequences: shares of the terms of the attention scores of the first block "
    "(TUPE Eq. 6; the query is named first), by their variance over the keys of a query. Constant: "
    "with biases in the query or the key."
)


class Parts(NamedTuple):
    """Three vectors whose sum is the input of an attention; each broadcasts to [B, S, D]."""

    word: Tensor
    position: Tensor
    constant: Tensor


def findings(subjects: Sequence[Subject]) -> Findings:
    """Return the terms of each head of each run.

    Raises:
        ConfigError: an encoding does not add positions to the words.
    """
    known = [name for name, one in POSITION_ENCODINGS.items() if issubclass(one, BertAbsolute)]
    for subject in subjects:
        if (kind := subject.settings.model.positions) not in known:
            raise ConfigError(
                f"{subject.folder} has model.positions={kind!r}, which does not add positions to "
                "the words, so that its scores have no such terms (TUPE Eq. 6); analyse runs with "
                f"one of {', '.join(known)}"
            )
    measured = measured_at_steps("terms", subjects, measure_terms)
    table = [
        {
            **{"run": run, "step": step, "block": 1, "head": head, "term": term},
            **{"variance_over_keys": size, "share_of_variances": size / sum(sizes)},
        }
        for run, steps in measured.items()
        for step, heads in steps.items()
        for head, sizes in enumerate(heads, 1)
        for term, size in zip(TERMS, sizes, strict=True)
    ]
    newest = {run: heads for run, steps in measured.items() for heads in steps.values()}
    return Findings({"terms": table}, {"terms": draw_terms(newest)})


@torch.no_grad()
def measure_terms(model: Objective, batches: Sequence[MaskedBatch]) -> list[list[float]]:
    """Return the variances of the terms of each head of the first block, in the order of TERMS.

    They are those over keys, the mean over rows and queries, in squared units of a score;
    "relative" is 0 without b_{j-i}. The model is in evaluation mode; rows that fill the last batch
    are left out.
    """
    encoder = model.encoder
    first = encoder.blocks[0]
    assert isinstance(first, Block)
    sums_NT, rows = torch.zeros(()), 0
    for batch in batches:
        ids_BS = encoder_inputs(model, batch)
        relative_NSS = encoder.positions.attention_bias(ids_BS.shape[1])
        terms = centred_terms(first.attention, first_parts(encoder, ids_BS), relative_NSS)
        variances = [term.square().mean((-1, -2), dtype=torch.float64) for term in terms]
        sums_NT = sums_NT + torch.stack(variances, -1).sum(0)
        rows += len(ids_BS)
    variances_NT: list[list[float]] = (sums_NT / rows).tolist()
    return variances_NT


def first_parts(encoder: Encoder, ids_BS: Tensor) -> Parts:
    """Return the parts of the first block's input, for an encoding that adds p to the words."""
    assert isinstance(encoder.positions, BertAbsolute)
    position_SD = encoder.positions.position_embeddings.weight[: ids_BS.shape[1]]
    nothing = torch.zeros_like(position_SD[0])
    parts = Parts(encoder.token_embeddings(ids_BS), position_SD, nothing)
    first = encoder.blocks[0]
    assert isinstance(first, Block)
    parts = _normalised(parts, encoder.embedding_norm)
    return _normalised(parts, first.attention_norm) if first.norm_first else parts


def _normalised(parts: Parts, norm: nn.LayerNorm) -> Parts:
    """Return the parts of a LayerNorm's output, given those of its input."""
    variance = sum(parts).var(-1, correction=0, keepdim=True)  # type: ignore[union-attr]
    scale = norm.weight * (variance + norm.eps).rsqrt()
    word, position, constant = ((part - part.mean(-1, keepdim=True)) * scale for part in parts)
    return Parts(word, position, constant + norm.bias)


def centred_terms(attention: Attention, parts: Parts, relative_NSS: Tensor | None) -> list[Tensor]:
    """Return the terms of the scores, each less its mean over the keys; they broadcast to BNSS."""
    width = attention.query_key_value.in_features
    query_DD, key_DD, _ = attention.query_key_value.weight.view(3, width, width)
    bias_D = attention.query_key_value.bias[:width]

    def heads(projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:-1], attention.num_heads, -1).transpose(-3, -2)

    def keys(part: Tensor) -> Tensor:
        key = heads(part @ key_DD.T)
        return key - key.mean(-2, keepdim=True)

    word, position, constant = (part.expand_as(parts.word) for part in parts)
    queries = [heads(part @ query_DD.T) for part in (word, position)]
    words, positions, constants = (keys(part) for part in (word, position, constant))
    pairs = [(query, key) for query in queries for key in (words, positions)]
    terms = [query @ key.transpose(-1, -2) * attention.score_scale for query, key in pairs]
    constant_query = heads(constant @ query_DD.T + bias_D)
    with_constant = constant_query @ (words + positions + constants).transpose(-1, -2)
    from_rest = (queries[0] + queries[1]) @ constants.transpose(-1, -2)
    terms.append((with_constant + from_rest) * attention.score_scale)
    none = torch.zeros(())
    relative = none if relative_NSS is None else relative_NSS - relative_NSS.mean(-1, keepdim=True)
    return [*terms, relative.expand_as(terms[0])]


def draw_terms(measured: dict[str, list[list[float]]]) -> Figure:
    """Draw a panel per run: the shares of the terms in each head."""
    figure = empty_figure(CAPTION, height=len(measured) * PANEL_HEIGHT + LEGEND)
    panels, used = rows_of_panels(figure, [1] * len(measured)), set[int]()
    for (run, heads), (axes,) in zip(measured.items(), panels, strict=True):
        label = "share of the variances"
        axes.set(title=as_written(f"{run}: block 1"), xlabel="head", ylabel=label)
        places, below = range(1, len(heads) + 1), [0.0] * len(heads)
        shares_of_heads = [[size / sum(sizes) for size in sizes] for sizes in heads]
        for number, shares in enumerate(zip(*shares_of_heads, strict=True)):
            axes.bar(places, shares, bottom=below, width=0.7, linewidth=0.6, **_style(number))
            below = [one + share for one, share in zip(below, shares, strict=True)]
            used |= {number} if any(shares) else set()
        axes.set_axisbelow(True)
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_xticks(places)
    figure.legend(
        handles=[Patch(label=TERMS[number], **_style(number)) for number in sorted(used)],
        loc="outside upper center",
        ncols=len(used),
    )
    return figure


def _style(number: int) -> dict[str, Any]:
    return {"facecolor": FACES[number], "hatch": HATCHES[number], "edgecolor": INK}
