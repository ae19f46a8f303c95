"""Encoders pre-trained with Tupelo, for Hugging Face's transformers.

Positions, blocks and heads are files of the trainer, which every export carries beside this one.

Shape letters: B batch, S sequence, D width, N heads, H head width, V vocabulary, C classes.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

# Transformers before 5 copies the files that this one names, not those that they import.
from pretrain.model.attention import Attention as Attention
from pretrain.model.blocks import Block, WideLayerNorm
from pretrain.model.heads import ClassificationHead, DiscriminatorHead, MaskedLanguageModelHead
from pretrain.model.position_baselines import NoPositions as NoPositions
from pretrain.model.position_encoding import PositionEncoding as PositionEncoding
from pretrain.model.position_tables import RelativeBias as RelativeBias
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.model.torch_attention import AttentionInputs, eager, sdpa, weights_and_values

from .configuration_tupelo import TupeloConfig


class TupeloPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What the models below share: configuration, initial values, loading."""

    config_class = TupeloConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # Trainer averages the means of micro-batches
    _supports_sdpa = True
    _no_split_modules = ["Block"]
    _keys_to_ignore_on_load_unexpected: list[str] = [r"^head\."]  # of pre-training

    def _init_weights(self, module: nn.Module) -> None:
        """Draw new weights as BERT does, and those of a classifier as the TUPE authors' code."""
        heads = [head for head in self.children() if isinstance(head, ClassificationHead)]
        for layer in (layer for head in heads for layer in (head.dense, head.output)):
            if module is layer:
                layer.reset_parameters()  # PyTorch's own values
                return
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

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__(config)
        self.token_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.positions not in POSITION_ENCODINGS:
            names = ", ".join(POSITION_ENCODINGS)
            raise ValueError(f"positions={config.positions!r} does not exist; one of {names}")
        self.positions = POSITION_ENCODINGS[config.positions](config)
        self.embedding_norm = WideLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        own = (self.positions.score_scale, partial(attend, self.config))
        self.blocks = nn.ModuleList(Block(config, *own) for _ in range(config.num_hidden_layers))
        self.final_norm = None
        if config.norm == "pre":
            self.final_norm = WideLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.gradient_checkpointing = False
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
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Any, ...]:
        """Return the hidden states of the last layer, or of all.

        Args:
            input_ids: token ids, shape BS.
            attention_mask: 0 for padding, which comes last, shape BS; None: every row is full.
            token_type_ids: zeros, shape BS: there are no segments.
            position_ids: 0, 1, 2, ..., shape BS: tokens are in order.
            inputs_embeds: instead of ids, the vectors of the tokens, shape BSD.
            output_attentions: return the weights BNSS of each layer, which are then computed once
                more, without fused kernels.
            output_hidden_states: return the input of the first block and the output of each.
            return_dict: False returns a tuple.

        Raises:
            ValueError: the model cannot do what an argument asks for.
        """
        config = self.config
        if output_attentions is None:
            output_attentions = config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        x_BSD = self.token_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        length, longest = x_BSD.shape[1], config.max_position_embeddings
        if length > longest:
            raise ValueError(
                f"the input has {length} tokens, but there are {longest} positions; shorten it, "
                "for instance with truncation=True in the tokenizer"
            )
        if token_type_ids is not None and token_type_ids.any():
            raise ValueError(
                "this model was pre-trained without segments: leave token_type_ids out"
            )
        in_order = torch.arange(length, device=x_BSD.device)
        if position_ids is not None and (position_ids != in_order).any():
            raise ValueError("tokens are at the positions 0, 1, 2, ...: leave position_ids out")
        x_BSD = self.dropout(self.embedding_norm(self.positions.add_to_embeddings(x_BSD)))
        x_BSD, states, weights = self._through_blocks(
            x_BSD,
            attention_mask,
            with_states=bool(output_hidden_states),
            with_weights=bool(output_attentions),
        )
        output = BaseModelOutput(
            last_hidden_state=x_BSD,
            hidden_states=(*states, x_BSD) if output_hidden_states else None,
            attentions=tuple(weights) if output_attentions else None,
        )
        return _as_asked(output, return_dict, config)

    def _through_blocks(
        self, x_BSD: Tensor, attention_mask: Tensor | None, *, with_states: bool, with_weights: bool
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the output, and the input and the attention weights of each block if asked for."""
        length = x_BSD.shape[1]
        terms = self.positions.terms(length, device=x_BSD.device)
        mask_BNSS = additive_mask(terms.bias_NSS, attention_mask, x_BSD.dtype)
        terms = terms._replace(bias_NSS=mask_BNSS)
        states, weights = list[Tensor](), list[Tensor]()
        block: Any  # which other programs may have wrapped
        for layer, block in enumerate(self.blocks):
            own = self.positions.of_layer(terms, layer, length)
            if with_states:
                states.append(x_BSD)
            if with_weights:
                normed_BSD = block.attention_norm(x_BSD) if block.norm_first else x_BSD
                inputs = block.attention.inputs(normed_BSD, own)
                weights.append(weights_and_values(inputs)[0])
            if self.gradient_checkpointing and self.training:
                # Re-entrant recomputation would give the terms inside of `own` no gradients.
                x_BSD = checkpoint(block, x_BSD, own, use_reentrant=False)
            else:
                x_BSD = block(x_BSD, own)
        if self.final_norm is not None:
            x_BSD = self.final_norm(x_BSD)
        return x_BSD, states, weights


def additive_mask(
    bias_NSS: Tensor | None, attention_mask: Tensor | None, dtype: torch.dtype
) -> Tensor | None:
    """Return what is added to the scores: the bias of the positions, and nearly -inf at padding."""
    if attention_mask is None:
        return bias_NSS
    if attention_mask.dim() != 2:
        shape = tuple(attention_mask.shape)
        raise ValueError(f"attention_mask has the shape {shape}; give (batch, tokens)")
    if not torch.compiler.is_compiling() and (attention_mask[:, 0] == 0).any():
        raise ValueError("padding comes after the text: set tokenizer.padding_side = 'right'")
    is_hidden_B11S = attention_mask[:, None, None, :] == 0
    if bias_NSS is None:
        bias_NSS = is_hidden_B11S.new_zeros(1, 1, 1, dtype=dtype)
    return bias_NSS.to(dtype).masked_fill(is_hidden_B11S, torch.finfo(dtype).min)


def attend(config: TupeloConfig, inputs: AttentionInputs) -> Tensor:
    """Attend as the configuration asks for; see `AttentionBackend` of torch_attention.py."""
    mixed_BNSH = eager(inputs) if config._attn_implementation == "eager" else sdpa(inputs)
    if not torch.compiler.is_compiling():
        return mixed_BNSH
    # Where the graph runs, attention may order its output in memory otherwise.
    mixed_BSNH = mixed_BNSH.transpose(1, 2).clone(memory_format=torch.contiguous_format)
    return mixed_BSNH.transpose(1, 2)


class TupeloWithHead(TupeloPreTrainedModel):
    """The encoder with a head: a class has `add_head`, which adds its layers, and `logits`."""

    output_class: type[Any]

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__(config)
        self.encoder = TupeloModel(config)
        self.add_head(config)
        self.post_init()

    def loss(self, logits: Tensor, labels: Tensor, attention_mask: Tensor | None) -> Any:
        """Return the cross-entropy of labels_BS; of other heads another mean loss."""
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """Return logits, and with labels their mean loss over those that are not -100.

        The other arguments are as of `TupeloModel.forward`.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        encoded = self.encoder(*inputs, output_attentions, output_hidden_states, True)
        logits, loss = self.logits(encoded.last_hidden_state), None
        if labels is not None:
            loss = self.loss(logits, labels, attention_mask)
        states, attentions = encoded.hidden_states, encoded.attentions
        output = self.output_class(
            loss=loss, logits=logits, hidden_states=states, attentions=attentions
        )
        return _as_asked(output, return_dict, self.config)


class TupeloForMaskedLM(TupeloWithHead):
    """The encoder with the head that it was pre-trained with: logits_BSV."""

    output_class = MaskedLMOutput
    _keys_to_ignore_on_load_unexpected: list[str] = []

    def add_head(self, config: TupeloConfig) -> None:
        """Add the head, whose output weights are the table of the tokens."""
        self.head = MaskedLanguageModelHead(
            config.hidden_size, config.vocab_size, config.layer_norm_eps
        )

    def resize_token_embeddings(self, *arguments: Any, **options: Any) -> nn.Embedding:
        """Resize the table, which is the output weights too, and their bias with it."""
        table = super().resize_token_embeddings(*arguments, **options)
        bias = self.head.output_bias
        missing = table.num_embeddings - bias.shape[0]
        self.head.output_bias = nn.Parameter(F.pad(bias.detach(), (0, missing)), bias.requires_grad)
        return table  # type: ignore[no-any-return]

    def logits(self, x_BSD: Tensor) -> Tensor:
        """Return logits_BSV."""
        logits_BSV: Tensor = self.head(x_BSD, self.encoder.token_embeddings.weight)
        return logits_BSV


class TupeloForPreTraining(TupeloWithHead):
    """The discriminator of ELECTRA: the encoder, and the logit_BS that a token was replaced."""

    output_class = TokenClassifierOutput
    _keys_to_ignore_on_load_unexpected: list[str] = []

    def add_head(self, config: TupeloConfig) -> None:
        """Add the discriminator's head."""
        self.head = DiscriminatorHead(config.hidden_size)

    def logits(self, x_BSD: Tensor) -> Tensor:
        """Return logits_BS."""
        logits_BS: Tensor = self.head(x_BSD)
        return logits_BS

    def loss(self, logits: Tensor, labels: Tensor, attention_mask: Tensor | None) -> Any:
        """Return the mean loss over labels 0 and 1, not -100, of tokens that are no padding."""
        counted = labels != -100
        if attention_mask is not None:
            counted = counted & (attention_mask != 0)
        return F.binary_cross_entropy_with_logits(logits[counted], labels[counted].float())


class TupeloForSequenceClassification(TupeloWithHead):
    """The encoder, and a classifier on its [CLS]: logits_BC."""

    output_class = SequenceClassifierOutput

    def add_head(self, config: TupeloConfig) -> None:
        """Add the classifier of fine-tuning here."""
        self.classifier = ClassificationHead(
            config.hidden_size, config.num_labels, config.hidden_dropout_prob
        )

    def logits(self, x_BSD: Tensor) -> Tensor:
        """Return one row of logits per text."""
        logits_BC: Tensor = self.classifier(x_BSD[:, 0])
        return logits_BC

    def loss(self, logits: Tensor, labels: Tensor, attention_mask: Tensor | None) -> Any:
        """Return the loss of `config.problem_type`; None: what the labels are, as of a BERT."""
        return self.loss_function(labels, logits.float(), self.config)


class TupeloForTokenClassification(TupeloWithHead):
    """The encoder, and a linear classifier on each token, as BERT has it: logits_BSC."""

    output_class = TokenClassifierOutput

    def add_head(self, config: TupeloConfig) -> None:
        """Add the classifier."""
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def logits(self, x_BSD: Tensor) -> Tensor:
        """Return one row of logits per token."""
        logits_BSC: Tensor = self.classifier(self.dropout(x_BSD))
        return logits_BSC


class TupeloForQuestionAnswering(TupeloPreTrainedModel):
    """The encoder, and for each token the logits that an answer starts and ends there."""

    def __init__(self, config: TupeloConfig) -> None:
        super().__init__(config)
        self.encoder = TupeloModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> QuestionAnsweringModelOutput | tuple[Any, ...]:
        """Return the logits BS of both, and the mean of their cross-entropies.

        Positions, shape B, behind the end of the row do not count.
        """
        encoded = self.encoder(
            *(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds),
            *(output_attentions, output_hidden_states, True),
        )
        start_BS, end_BS = self.qa_outputs(encoded.last_hidden_state).float().unbind(-1)
        output = QuestionAnsweringModelOutput(
            loss=self.loss_function(start_BS, end_BS, start_positions, end_positions),
            start_logits=start_BS,
            end_logits=end_BS,
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )
        return _as_asked(output, return_dict, self.config)


def _as_asked(output: Any, return_dict: bool | None, config: TupeloConfig) -> Any:
    as_dict = config.return_dict if return_dict is None else return_dict
    return output if as_dict else output.to_tuple()


# So that `save_pretrained` copies this file, and those that it imports, beside the weights.
TupeloModel.register_for_auto_class("AutoModel")
for _class in (*TupeloWithHead.__subclasses__(), TupeloForQuestionAnswering):
    _class.register_for_auto_class(_class.__name__.replace("Tupelo", "AutoModel"))
