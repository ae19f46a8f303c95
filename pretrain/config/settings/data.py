"""Settings of the text, its sequences and its masks."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from data_prep.settings import TextSettings
from pretrain.config.settings.section import is_changed


class DataSettings(TextSettings):
    """The text, how it becomes sequences of token ids, and how these are masked."""

    shards: Path | None = Field(
        None, description="folder of HDF5 shards; default: named after the settings of this section"
    )
    masked_probability: float = Field(
        0.15, gt=0, lt=1, description="share of tokens that are predicted"
    )
    masking: Literal["tokens", "words", "spans"] = Field(
        "tokens", description="masking unit: single tokens, whole words, or spans of words"
    )
    mean_span_words: float = Field(
        3.8, ge=1, description="mean length of a span, with masking=spans"
    )
    mask_token_share: float = Field(
        0.8, ge=0, le=1, description="share of predicted tokens replaced by [MASK]; ELECTRA: 0.85"
    )
    random_token_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="share of predicted tokens replaced by a random one; the rest stay; ELECTRA: 0",
    )
    loader_workers: int = Field(
        0, ge=0, description="processes that prepare batches; 0: none, the rank itself does"
    )

    @model_validator(mode="after")
    def _refuse_without_effect(self) -> "DataSettings":
        if self.masking != "spans" and is_changed(self, "mean_span_words"):
            raise ValueError(
                f"data.mean_span_words={self.mean_span_words} has no effect with data.masking="
                f"{self.masking!r}; choose data.masking=spans, or remove it"
            )
        return self

    @model_validator(mode="after")
    def _check_shares(self) -> "DataSettings":
        if self.mask_token_share + self.random_token_share > 1:
            raise ValueError(
                f"data.mask_token_share={self.mask_token_share:g} and data.random_token_share="
                f"{self.random_token_share:g} are more than 1 together; lower one"
            )
        return self
