"""Settings of the networks: shape, positions, norms; the generator of ELECTRA."""

from typing import Any, Literal

from pydantic import Field, model_validator

from data_prep.files.quoting import quoted
from data_prep.settings import Section, is_changed
from pretrain.config.settings.transformers_config import (
    FIELDS,
    configuration_of,
    with_configuration,
)

DEFAULT_OBJECTIVE = "masked_language_model"  # also of runs that name none

REPLACED_TOKEN_DETECTION = "replaced_token_detection"  # ELECTRA

# Bounds far above any real model: a typo fails before allocation.
MOST_LAYERS, WIDEST, LONGEST_ROW, LARGEST_VOCABULARY = 4096, 1 << 18, 1 << 18, 1 << 26


class EncodingSettings(Section):
    """What position encodings have of their own: each names those that it reads."""

    cls_reset: Literal["paper", "reference"] = Field(
        "paper",
        description="[CLS] is reset in the sum of the biases (TUPE Eq. 9), or in each, as in the "
        "authors' code",
    )
    position_projection_bias: bool = Field(
        False,
        description="a bias in projections of positions, as in TUPE's code; the paper has none",
    )
    relative_buckets: int = Field(
        32, ge=4, le=LONGEST_ROW, multiple_of=2, description="number of T5 distance buckets"
    )
    relative_max_distance: int = Field(
        128, ge=2, le=LONGEST_ROW, description="distance at which T5 buckets end"
    )
    relative_clip: int = Field(
        16,
        ge=1,
        le=LONGEST_ROW,
        description="largest distinct distance (t of Shaw et al.), with positions=shaw",
    )
    rotary_base: float = Field(
        10_000.0, gt=1, description="base of RoPE's angles, with positions=rope"
    )


class ModelSettings(EncodingSettings):
    """Shape and variant of the encoder."""

    num_layers: int = Field(12, ge=1, le=MOST_LAYERS, description="number of Transformer blocks")
    width: int = Field(768, ge=1, le=WIDEST, description="width of the hidden states")
    num_heads: int = Field(12, ge=1, le=WIDEST, description="attention heads")
    feedforward_width: int = Field(
        3072, ge=1, le=4 * WIDEST, description="inner width of the feed-forward; default 4 x width"
    )
    vocabulary_size: int = Field(
        30_528, ge=6, le=LARGEST_VOCABULARY, description="size of the vocabulary"
    )
    max_sequence_length: int = Field(
        512, ge=8, le=LONGEST_ROW, description="longest sequence, size of the position table"
    )
    positions: str = Field(
        "tupe-r",
        description="position encoding, see docs/SETTINGS.md; own: that of a model of transformers",
    )
    norm: Literal["pre", "post"] = Field(
        "pre", description="LayerNorm before (PreLN) or after (PostLN) a branch"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of embeddings and branches")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout of attention weights")
    layer_norm_epsilon: float = Field(1e-12, gt=0, description="epsilon of LayerNorm")
    initializer_range: float = Field(
        0.02, gt=0, description="standard deviation of initial weights"
    )
    branch_initialisation: Literal["bert", "depth_scaled"] = Field(
        "bert",
        description="initial output weights of both branches: as all others, or divided by "
        "sqrt(2 x num_layers), as in bing_bert and GPT-2",
    )
    output_bias: Literal["zeros", "frequencies"] = Field(
        "zeros",
        description="initial output bias: zeros, as in BERT, or log unigram frequencies of the "
        "training text",
    )
    folder: str | None = Field(
        None,
        description="train this model of transformers, from its weights, as it is: a folder or "
        "name on the Hub that AutoModelForMaskedLM opens",
    )
    transformers: str | dict[str, Any] | None = Field(
        None,
        description="train a new model of transformers: its type, such as roberta, with the shape "
        "above; or a config.json",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values  # pydantic reports it by name
        filled: dict[str, Any] = dict(values)
        width = quoted(filled.get("width")).strip("'").removesuffix(".0")  # text on a command line
        if "feedforward_width" not in filled and width.isascii() and width.isdigit():
            filled["feedforward_width"] = 4 * int(width)
        return with_configuration(filled)

    @model_validator(mode="after")
    def _check_together(self) -> "ModelSettings":
        if self.transformers is None and self.width % self.num_heads:
            raise ValueError(
                f"model.width={self.width} cannot be split over model.num_heads={self.num_heads}; "
                "choose a width that is a multiple of the heads"
            )
        if not isinstance(self.transformers, dict):
            return self
        config = configuration_of(self.transformers, self.folder)
        known = {name for name, theirs in FIELDS.items() if any(hasattr(config, n) for n in theirs)}
        read = {*known, "positions", "folder", "transformers"}
        if self.positions != "own":
            read |= EncodingSettings.model_fields.keys()
        for name in type(self).model_fields.keys() - read:
            if is_changed(self, name):
                raise ValueError(
                    f"model.{name} has no effect with a model of transformers; leave it at "
                    f"{quoted(type(self).model_fields[name].default)}"
                )
        return self

    @property
    def head_width(self) -> int:
        """Return the width of one attention head."""
        return self.width // self.num_heads


class ElectraSettings(Section):
    """ELECTRA's generator (Clark et al. 2020)."""

    generator_width: float = Field(
        1 / 3,
        gt=0,
        le=1,
        description="generator's width as a share of model.width, rounded to whole heads",
    )
