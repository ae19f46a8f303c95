"""The layers of encoders pre-trained with Tupelo, for Hugging Face's transformers.

They are written anew: the trainer's take lengths of rows, scales of dropped layers and kernels of
their own, where transformers has any attention mask. The call of torch's attention is the
trainer's.

Shape letters as in modeling_tupelo.py.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .configuration_tupelo import TupeloConfig
from .position_encoding import (
    PositionEncoding,
    PositionSettings,
    PositionTerms,
    Rotation,
    transform_query_key,
)
from .positions import POSITION_ENCODINGS
from .torch_attention import torch_attention


def is_traced() -> bool:
    """Return whether a graph is recorded that must hold for rows of any length and content."""
    is_tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    return is_tracing or torch.compiler.is_compiling()


def is_exported() -> bool:
    """Return whether a graph is recorded to be kept: one of torch.compile is for the rows at hand.

    One function, as torch.compile compiles it alone where that of the caller failed.
    """
    return is_traced() and not torch.compiler.is_dynamo_compiling()


def position_encoding(config: TupeloConfig) -> PositionEncoding:
    """Build the encoding that `config.positions` names."""
    name = config.positions
    if name not in POSITION_ENCODINGS:
        raise ValueError(
            f"positions={name!r} does not exist; one of {', '.join(POSITION_ENCODINGS)}"
        )
    shape = {
        "num_layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "num_heads": config.num_attention_heads,
        "max_sequence_length": config.max_position_embeddings,
        "layer_norm_epsilon": config.layer_norm_eps,
    }
    return POSITION_ENCODINGS[name](PositionSettings(**{**config.to_dict(), **shape}))


def of_first(terms: PositionTerms, position_S: Tensor) -> PositionTerms:
    """Return the terms of the positions 0, 1, ..., from those of longer rows.

    They are gathered: a graph with slices would hold for all lengths but the longest.
    """
    bias_NSS, query_key_NSH, rotation = terms.bias_NSS, terms.query_key_NSH, terms.rotation
    if bias_NSS is not None:
        bias_NSS = bias_NSS.index_select(1, position_S).index_select(2, position_S)
    if query_key_NSH is not None:
        query_NSH, key_NSH = (rows.index_select(1, position_S) for rows in query_key_NSH)
        query_key_NSH = (query_NSH, key_NSH)
    if rotation is not None:
        rotation = Rotation(*(angles.index_select(0, position_S) for angles in rotation))
    return terms._replace(bias_NSS=bias_NSS, query_key_NSH=query_key_NSH, rotation=rotation)


def additive_mask(
    bias_NSS: Tensor | None, attention_mask: Tensor | None, dtype: torch.dtype
) -> Tensor | None:
    """Return what is added to the scores: the bias of the positions, and nearly -inf at padding.

    Args:
        bias_NSS: of the positions.
        attention_mask: 0 where a key is hidden: from all queries, shape BS, or from each, BSS.
        dtype: of the scores.
    """
    mask_BNSS = None if bias_NSS is None else bias_NSS.to(dtype).unsqueeze(0)
    if attention_mask is None:
        return mask_BNSS
    if attention_mask.dim() not in (2, 3):
        raise ValueError(
            f"attention_mask has the shape {tuple(attention_mask.shape)}; give (batch, tokens), "
            "or (batch, tokens, tokens) with a row for each query"
        )
    by_query = attention_mask if attention_mask.dim() == 3 else attention_mask[:, None, :]
    is_hidden = by_query[:, None] == 0
    if mask_BNSS is None:
        mask_BNSS = is_hidden.new_zeros(1, 1, 1, 1, dtype=dtype)
    return mask_BNSS.masked_fill(is_hidden, torch.finfo(dtype).min)


def relative_scores(q_BNSH: Tensor, key_RH: Tensor, scale: float) -> Tensor:
    """Return scale q_i a_{clip(j - i)}, shape BNSS, with the rows a of key_RH.

    They are gathered: the shapes of the trainer's faster function cannot be traced.
    """
    length, reach = q_BNSH.shape[2], (key_RH.shape[0] - 1) // 2
    position_S = torch.arange(length, device=q_BNSH.device)
    row_SS = (position_S - position_S[:, None]).clamp(-reach, reach) + reach
    scores_BNSR = q_BNSH @ (key_RH * scale).to(q_BNSH.dtype).t()
    return scores_BNSR.gather(-1, row_SS.expand(*q_BNSH.shape[:3], length))


def eager_attention(
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    mask_BNSS: Tensor | None,
    *,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Return softmax(scale q k^T + mask) v, shape BNSH, and the softmax, BNSS."""
    scores_BNSS = scale * (q_BNSH @ k_BNSH.transpose(-1, -2))
    if mask_BNSS is not None:
        scores_BNSS = scores_BNSS + mask_BNSS
    weights_BNSS = scores_BNSS.softmax(-1, dtype=torch.float32).to(v_BNSH.dtype)
    return F.dropout(weights_BNSS, dropout) @ v_BNSH, weights_BNSS


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, config: TupeloConfig, score_scale: float) -> None:
        super().__init__()
        self.num_heads, self.score_scale = config.num_attention_heads, score_scale
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout_probability = config.attention_probs_dropout_prob

    def forward(
        self, x_BSD: Tensor, mask_BNSS: Tensor | None, terms: PositionTerms, eager: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the projected output, shape BSD, and the weights BNSS if `eager`."""
        batch, length, width = x_BSD.shape
        heads = (batch, length, 3, self.num_heads, width // self.num_heads)
        q_BNSH, k_BNSH, v_BNSH = self.query_key_value(x_BSD).view(heads).permute(2, 0, 3, 1, 4)
        q_BNSH, k_BNSH = transform_query_key(q_BNSH, k_BNSH, terms)
        if terms.relative_key_RH is not None:
            scores_BNSS = relative_scores(q_BNSH, terms.relative_key_RH, self.score_scale)
            # In one piece: kernels for GPUs read aligned rows.
            mask_BNSS = (scores_BNSS if mask_BNSS is None else mask_BNSS + scores_BNSS).contiguous()
        inputs = (q_BNSH, k_BNSH, v_BNSH, mask_BNSS)
        dropout, weights_BNSS = self.dropout_probability if self.training else 0.0, None
        if eager:
            mixed_BNSH, weights_BNSS = eager_attention(
                *inputs, scale=self.score_scale, dropout=dropout
            )
        else:
            mixed_BNSH = torch_attention(*inputs, scale=self.score_scale, dropout=dropout)
        mixed_BSNH = mixed_BNSH.transpose(1, 2)
        if is_traced():  # where the graph runs, attention may order its output otherwise
            mixed_BSNH = mixed_BSNH.clone(memory_format=torch.contiguous_format)
        output_BSD: Tensor = self.output(mixed_BSNH.reshape(batch, length, width))
        return output_BSD, weights_BNSS


class FeedForward(nn.Module):
    """Two linear maps around a GELU."""

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Apply the same function to every position."""
        output: Tensor = self.output(F.gelu(self.inner(x_BSD)))
        return output


class TupeloBlock(nn.Module):
    """Attention and feed-forward, with LayerNorm before ("pre") or after ("post") each branch."""

    def __init__(self, config: TupeloConfig, score_scale: float) -> None:
        super().__init__()
        self.norm_first = config.norm == "pre"
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = Attention(config, score_scale)
        self.feedforward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feedforward = FeedForward(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        x_BSD: Tensor,
        mask_BNSS: Tensor | None,
        query_NSH: Tensor | None,
        key_NSH: Tensor | None,
        rotation: Rotation | None,
        relative_key_RH: Tensor | None,
        eager: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return x_BSD after both branches, and the weights of the attention if `eager`.

        The terms of the positions that learn are arguments of their own: recomputation in the
        backward pass ("re-entrant") gives no gradients to tensors inside of others.
        """
        added = None if query_NSH is None or key_NSH is None else (query_NSH, key_NSH)
        terms = PositionTerms(
            query_key_NSH=added, rotation=rotation, relative_key_RH=relative_key_RH
        )
        normed_BSD = self.attention_norm(x_BSD) if self.norm_first else x_BSD
        attended_BSD, weights_BNSS = self.attention(normed_BSD, mask_BNSS, terms, eager)
        x_BSD = x_BSD + self.dropout(attended_BSD)
        if self.norm_first:
            x_BSD = x_BSD + self.dropout(self.feedforward(self.feedforward_norm(x_BSD)))
            return x_BSD, weights_BNSS
        x_BSD = self.attention_norm(x_BSD)
        return self.feedforward_norm(x_BSD + self.dropout(self.feedforward(x_BSD))), weights_BNSS


class MaskedLanguageModelHead(nn.Module):
    """Dense, GELU, LayerNorm, and the token embeddings again as output weights."""

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x_BSD: Tensor, token_embeddings_VD: Tensor) -> Tensor:
        """Return logits_BSV."""
        hidden_BSD = self.norm(F.gelu(self.dense(x_BSD)))
        return F.linear(hidden_BSD, token_embeddings_VD, self.output_bias)


class DiscriminatorHead(nn.Module):
    """Dense, GELU, and one logit per token: that it was replaced."""

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dense_prediction = nn.Linear(config.hidden_size, 1)

    def forward(self, x_BSD: Tensor) -> Tensor:
        """Return logits_BS."""
        logits_BS: Tensor = self.dense_prediction(F.gelu(self.dense(x_BSD))).squeeze(-1)
        return logits_BS


class ClassificationHead(nn.Module):
    """Dropout, dense, tanh, dropout, linear: the head of the TUPE authors' code."""

    def __init__(self, config: TupeloConfig, num_outputs: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, num_outputs)

    def forward(self, cls_BD: Tensor) -> Tensor:
        """Return a row of logits for each [CLS]."""
        hidden_BD = torch.tanh(self.dense(self.dropout(cls_BD)))
        logits: Tensor = self.output(self.dropout(hidden_BD))
        return logits
