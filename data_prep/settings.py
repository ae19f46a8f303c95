"""The settings that decide the content of a shard folder, each defined once."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PYTHON_DOCS = "python-docs"

Deduplication = Literal["none", "documents", "paragraphs"]
SentenceSplitter = Literal["sentencex", "spacy"]
DamagedFiles = Literal["stop", "skip"]

# They decide whether a build stops, not what it makes of the text.
STOPPING_SETTINGS = ("damaged_files",)

PRESETS: dict[str, dict[str, object]] = {
    # TUPE (ICLR 2021) section 4.1: sentences by spaCy; normalised, lower-cased and tokenised by
    # Moses; BPE. The paper says 32,678 entries. Its code learns 32,640 merges and pads the
    # dictionary to 32,768 = 2^15, so two digits of the paper have changed places.
    "tupe": {
        "sentences": "spacy",
        "moses": True,
        "lowercase": True,
        "tokenizer": "bpe",
        "vocabulary_size": 32_768,
    }
}


class Section(BaseModel):
    """A group of settings: immutable, without unknown names, with checked defaults."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )


def is_changed(settings: BaseModel, name: str) -> bool:
    """Return whether a setting is not its default."""
    return bool(settings.model_dump()[name] != type(settings).model_fields[name].default)


class TextSettings(Section):
    """Where text comes from, how it is cleaned, and how it becomes sequences of token ids."""

    preset: Literal["tupe"] | None = Field(
        None, description="a published preparation; fills in the settings that are not given"
    )
    corpus: tuple[str, ...] = Field(
        (PYTHON_DOCS,), description="sources [KIND:]PLACE[:key=value]..., read one after the other"
    )
    damaged_files: DamagedFiles = Field(
        "stop",
        description="at a truncated, damaged or non-text file, or a source of which more than 2 % "
        "cannot be read: stop, or go on without it and up to half of other lines",
    )
    max_words: int | None = Field(
        None, ge=1, description="stop reading after so many words between spaces, repeated or not"
    )
    deduplicate: Deduplication = Field(
        "paragraphs",
        description="drop exact duplicates: of documents, or of documents and paragraphs",
    )
    sentences: SentenceSplitter = Field("sentencex", description="sentence splitter")
    language: str | None = Field(
        None,
        description="language code, for sentences, Moses and model cards; default: English rules",
    )
    moses: bool = Field(
        False, description="normalise punctuation and split words with Moses, before the tokenizer"
    )
    tokenizer: str = Field(
        "wordpiece",
        description="train one (wordpiece, bpe or byte-bpe), or load one: a tokenizer.json, a "
        "vocab.txt, a folder with one, or a name on the Hugging Face Hub",
    )
    lowercase: bool = Field(True, description="lowercase, when training a tokenizer")
    strip_accents: bool | None = Field(
        None, description="strip accents; default: with lowercase, if at most 1 % of words have any"
    )
    sequence_length: int = Field(
        512, ge=8, le=65536, description="tokens in a sequence, including [CLS] and [SEP]"
    )
    valid_fraction: float = Field(
        0.02, gt=0, le=0.5, description="share of documents held out for validation"
    )

    @property
    def rules_language(self) -> str:
        """Return the language by whose rules sentences are split."""
        return self.language or "en"

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values  # pydantic refuses it by name
        preset = values.get("preset")
        chosen = PRESETS.get(preset, {}) if isinstance(preset, str) else {}
        return {name: chosen[name] for name in chosen if name in cls.model_fields} | values


class BuildSettings(TextSettings):
    """The settings of `build`: text, vocabulary size and file size."""

    vocabulary_size: int = Field(
        8192, ge=200, description="largest vocabulary, when training a tokenizer"
    )
    rows_per_shard: int = Field(65536, ge=1, description="most sequences in one file")
