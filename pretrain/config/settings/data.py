"""Settings of the text, its sequences and its masks."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from data_prep.settings import TextSettings

# Of shards that are built. Where shards are named, their manifest says these: without effect, they
# are refused (data/shards.py).
OF_TEXT = tuple(name for name in TextSettings.model_fields if name != "sequence_length")

# Of the predicted tokens.
Share = Annotated[float, Field(ge=0, le=1)]


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
    mask_shares: tuple[Share, Share] = Field(
        (0.8, 0.1),
        description="shares of predicted tokens that are replaced by [MASK], and by a random one; "
        "the rest stay; ELECTRA: 0.85,0",
    )

    @field_validator("mask_shares")
    @classmethod
    def _fit_into_one(cls, shares: tuple[float, float]) -> tuple[float, float]:
        if sum(shares) > 1:
            raise ValueError(f"data.mask_shares={shares} are more than 1 together; lower one")
        return shares
