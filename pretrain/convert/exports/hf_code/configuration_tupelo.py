"""Configuration of an encoder that was pre-trained with Tupelo."""

from transformers import PretrainedConfig


class TupeloConfig(PretrainedConfig):  # type: ignore[misc]
    """Shape and variant of the encoder; the names are those of BERT where it has the same thing.

    positions: an entry of POSITION_ENCODINGS in positions.py, whose own settings are entries too.
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

    @property
    def head_width(self) -> int:
        """Return the width of one attention head."""
        return int(self.hidden_size // self.num_attention_heads)


TupeloConfig.register_for_auto_class()  # `save_pretrained` then copies this file
