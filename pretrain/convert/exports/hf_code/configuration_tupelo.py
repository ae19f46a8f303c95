"""Configuration of an encoder that was pre-trained with Tupelo."""

from typing import Any

from transformers import PretrainedConfig


class TupeloConfig(PretrainedConfig):  # type: ignore[misc]
    """Shape and variant of the encoder; the names are those of BERT where it has the same thing.

    positions: an entry of POSITION_ENCODINGS in positions.py; `others` hold its own settings.
    norm: LayerNorm "pre" or "post", before or after the branches.
    """

    model_type = "tupelo"
    # The trainer's files, of which exports carry copies, read its settings by their own names.
    attribute_map = {
        "num_layers": "num_hidden_layers",
        "width": "hidden_size",
        "num_heads": "num_attention_heads",
        "feedforward_width": "intermediate_size",
        "max_sequence_length": "max_position_embeddings",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "layer_norm_epsilon": "layer_norm_eps",
    }

    def __init__(
        self,
        vocab_size: int = 30_528,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        max_position_embeddings: int = 512,
        positions: str = "tupe-r",
        norm: str = "pre",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        pad_token_id: int | None = 0,
        **others: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.max_position_embeddings = max_position_embeddings
        self.positions = positions
        self.norm = norm
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        super().__init__(pad_token_id=pad_token_id, **others)

    @property
    def head_width(self) -> int:
        """Return the width of one attention head."""
        return self.hidden_size // self.num_attention_heads


TupeloConfig.register_for_auto_class()  # `save_pretrained` then copies this file
