"""Encoders pre-trained with Tupelo, for Hugging Face's transformers.

The position encodings and the call of torch's attention are the files of the trainer, which every
export carries beside this one. The layers are written anew: the trainer's take lengths of rows,
scales of dropped layers and kernels of their own, where transformers has any attention mask.

Shape letters: B batch, S sequence, D width, N heads, H head width, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from .configuration_tupelo import TupeloConfig
from .position_encoding import (
    PositionEncoding,
    PositionSettings,
    PositionTerms,
    relative_scores,
    transform_query_key,
)
from .positions import POSITION_ENCODINGS
from .torch_attention import torch_attention


def position_encoding(config: TupeloConfig) -> PositionEncoding:
    """Build the encoding that `config.positions` names."""
    name = config.positions
    if name not in POSITION_ENCODINGS:
        raise ValueError(
            f"positions={name!r} does not exist; one of {', '.join(POSITION_ENCODINGS)}"
        )
    settings = PositionSettings(
        num_layers=config.num_hidden_layers,
        width=config.hidden_size,
        num_heads=config.num_attention_heads,
        max_sequence_length=config.max_position_embeddings,
        cls_reset=config.cls_reset,
        position_projection_bias=config.position_projection_bias,
        layer_norm_epsilon=config.layer_norm_eps,
        relative_buckets=config.relative_buckets,
        relative_max_distance=config.relative_max_distance,
        relative_clip=config.relative_clip,
    )
    return POSITION_ENCODINGS[name](settings)


class Attention(nn.Module):
    """Multi-head self-attention by torch's `scaled_dot_product_attention`."""

    def __init__(self, config: TupeloConfig, score_scale: float) -> None:
        super().__init__()
        self.num_heads, self.score_scale = config.num_attention_heads, score_scale
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout_probability = config.attention_probs_dropout_prob

    def forward(self, x_BSD: Tensor, mask_BNSS: Tensor | None, terms: PositionTerms) -> Tensor:
        """Return the projected output, shape BSD."""
        batch, length, width = x_BSD.shape
        heads = (batch, length, 3, self.num_heads, width // self.num_heads)
        q_BNSH, k_BNSH, v_BNSH = self.query_key_value(x_BSD).view(heads).permute(2, 0, 3, 1, 4)
        q_BNSH, k_BNSH = transform_query_key(q_BNSH, k_BNSH, terms)
        if terms.relative_key_RH is not None:
            scores_BNSS = relative_scores(q_BNSH, terms.relative_key_RH, self.score_scale)
            # In one piece: kernels for GPUs read aligned rows.
            mask_BNSS = (scores_BNSS if mask_BNSS is None else mask_BNSS + scores_BNSS).contiguous()
        dropout = self.dropout_probability if self.training else 0.0
        mixed_BNSH = torch_attention(
            q_BNSH, k_BNSH, v_BNSH, mask_BNSS, scale=self.score_scale, dropout=dropout
        )
        output: Tensor = self.output(mixed_BNSH.transpose(1, 2).reshape(batch, length, width))
        return output


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

    def forward(self, x_BSD: Tensor, mask_BNSS: Tensor | None, terms: PositionTerms) -> Tensor:
        """Return x_BSD after both branches."""
        if self.norm_first:
            attended_BSD = self.attention(self.attention_norm(x_BSD), mask_BNSS, terms)
            x_BSD = x_BSD + self.dropout(attended_BSD)
            mapped_BSD = self.feedforward(self.feedforward_norm(x_BSD))
            sum_BSD: Tensor = x_BSD + self.dropout(mapped_BSD)
            return sum_BSD
        attended_BSD = self.attention(x_BSD, mask_BNSS, terms)
        x_BSD = self.attention_norm(x_BSD + self.dropout(attended_BSD))
        output: Tensor = self.feedforward_norm(x_BSD + self.dropout(self.feedforward(x_BSD)))
        return output


class TupeloPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What the models below share: configuration, initial values, loading."""

    config_class = TupeloConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True
    _no_split_modules = ["TupeloBlock"]

    def _init_weights(self, module: nn.Module) -> None:
        """Draw new weights as BERT does."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, MaskedLanguageModelHead):
            nn.init.zeros_(module.output_bias)


class TupeloModel(TupeloPreTrainedModel):
    """Token ids to hidden states. [CLS] is `last_hidden_state[:, 0]`; there is no pooler."""

    _keys_to_ignore_on_load_unexpected = [r"^head\."]

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__(config)
        self.token_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = position_encoding(config)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        scale = self.positions.score_scale
        self.blocks = nn.ModuleList(
            TupeloBlock(config, scale) for _ in range(config.num_hidden_layers)
        )
        self.final_norm = None
        if config.norm == "pre":
            self.final_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table of the tokens."""
        return self.token_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the table of the tokens."""
        self.token_embeddings = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Any, ...]:
        """Return the hidden states of the last layer, or of all.

        Args:
            input_ids: token ids, shape BS.
            attention_mask: 0 for padding, shape BS; None: every row is full.
            inputs_embeds: instead of ids, the vectors of the tokens, shape BSD.
            output_hidden_states: return the input of the first block and the output of each.
            return_dict: False returns a tuple.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.token_embeddings(input_ids)
        length, longest = inputs_embeds.shape[1], self.config.max_position_embeddings
        if length > longest:
            raise ValueError(
                f"the input has {length} tokens, but there are {longest} positions; shorten it, "
                "for instance with truncation=True in the tokenizer"
            )
        x_BSD = self.embedding_norm(self.positions.add_to_embeddings(inputs_embeds))
        x_BSD = self.dropout(x_BSD)
        terms = self.positions.terms(length, device=x_BSD.device)
        mask_BNSS = additive_mask(terms.bias_NSS, attention_mask, x_BSD.dtype)
        states = [x_BSD]
        for layer, block in enumerate(self.blocks):
            own = self.positions.of_layer(terms, layer, length)
            states.append(block(states[-1], mask_BNSS, own))
        if self.final_norm is not None:
            states[-1] = self.final_norm(states[-1])
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        output = BaseModelOutput(
            last_hidden_state=states[-1],
            hidden_states=tuple(states) if output_hidden_states else None,
        )
        return _as_asked(output, return_dict, self.config)


def additive_mask(
    bias_NSS: Tensor | None, attention_mask_BS: Tensor | None, dtype: torch.dtype
) -> Tensor | None:
    """Return what is added to the scores: the bias of the positions, and nearly -inf at padding."""
    mask_BNSS = None if bias_NSS is None else bias_NSS.to(dtype).unsqueeze(0)
    if attention_mask_BS is None:
        return mask_BNSS
    is_padding_B11S = attention_mask_BS[:, None, None, :] == 0
    if mask_BNSS is None:
        mask_BNSS = is_padding_B11S.new_zeros(1, 1, 1, 1, dtype=dtype)
    return mask_BNSS.masked_fill(is_padding_B11S, torch.finfo(dtype).min)


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


class TupeloForMaskedLM(TupeloPreTrainedModel):
    """The encoder with the head that it was pre-trained with."""

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__(config)
        self.encoder = TupeloModel(config)
        self.head = MaskedLanguageModelHead(config)
        self.post_init()

    def resize_token_embeddings(self, *arguments: Any, **options: Any) -> nn.Embedding:
        """Resize the table, which is the output weights too, and their bias with it."""
        table = super().resize_token_embeddings(*arguments, **options)
        bias = self.head.output_bias
        missing = table.num_embeddings - len(bias)
        self.head.output_bias = nn.Parameter(F.pad(bias.detach(), (0, missing)))
        return table  # type: ignore[no-any-return]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> MaskedLMOutput | tuple[Any, ...]:
        """Return logits_BSV, and the mean cross-entropy over labels that are not -100."""
        encoded = self.encoder(input_ids, attention_mask, inputs_embeds, output_hidden_states, True)
        logits = self.head(encoded.last_hidden_state, self.encoder.token_embeddings.weight)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        output = MaskedLMOutput(loss=loss, logits=logits, hidden_states=encoded.hidden_states)
        return _as_asked(output, return_dict, self.config)


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


class TupeloForPreTraining(TupeloPreTrainedModel):
    """The discriminator of ELECTRA: the encoder, and the logit that a token was replaced."""

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__(config)
        self.encoder = TupeloModel(config)
        self.head = DiscriminatorHead(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> TokenClassifierOutput | tuple[Any, ...]:
        """Return logits_BS, and the mean loss over labels 0 and 1 of tokens that are no padding."""
        encoded = self.encoder(input_ids, attention_mask, inputs_embeds, output_hidden_states, True)
        logits = self.head(encoded.last_hidden_state)
        loss = None
        if labels is not None:
            is_word = torch.ones_like(labels) if attention_mask is None else attention_mask
            counted = is_word != 0
            loss = F.binary_cross_entropy_with_logits(
                logits[counted].float(), labels[counted].float()
            )
        output = TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=encoded.hidden_states
        )
        return _as_asked(output, return_dict, self.config)


class TupeloForSequenceClassification(TupeloPreTrainedModel):
    """The encoder, and on its [CLS]: dropout, dense, tanh, dropout, linear."""

    _keys_to_ignore_on_load_unexpected = [r"^head\."]

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__(config)
        self.encoder = TupeloModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if module is self.dense or module is self.output:
            module.reset_parameters()  # PyTorch's own values, as in the TUPE authors' code
        else:
            super()._init_weights(module)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput | tuple[Any, ...]:
        """Return one row of logits per text, and the loss of `config.problem_type`."""
        encoded = self.encoder(input_ids, attention_mask, inputs_embeds, output_hidden_states, True)
        cls_BD = self.dropout(encoded.last_hidden_state[:, 0])
        logits = self.output(self.dropout(torch.tanh(self.dense(cls_BD))))
        loss = None if labels is None else self._loss(logits.float(), labels)
        output = SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=encoded.hidden_states
        )
        return _as_asked(output, return_dict, self.config)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        problem = self.config.problem_type
        if problem is None:
            problem = "regression" if logits.shape[-1] == 1 else "single_label_classification"
        if problem == "regression":
            return F.mse_loss(logits.squeeze(-1), labels.view(logits.squeeze(-1).shape).float())
        if problem == "single_label_classification":
            return F.cross_entropy(logits, labels.flatten())
        if problem == "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, labels.float())
        raise ValueError(f"problem_type={problem!r} does not exist")


def _as_asked(output: Any, return_dict: bool | None, config: TupeloConfig) -> Any:
    as_dict = config.return_dict if return_dict is None else return_dict
    return output if as_dict else output.to_tuple()
