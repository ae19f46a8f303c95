"""The settings that decide the content of a shard folder, each defined once."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PYTHON_DOCS = "python-docs"

UnicodeForm = Literal["none", "NFC", "NFKC"]
Deduplication = Literal["none", "documents", "paragraphs"]
SentenceSplitter = Literal["sentencex", "spacy"]
DamagedFiles = Literal["stop", "skip"]

# They decide whether a build stops, not what it makes of the text.
STOPPING_SETTINGS = ("damaged_files", "max_skipped")

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
    },
}


class TextSettings(BaseModel):
    """Where text comes from, how it is cleaned, and how it becomes rows of token ids."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    preset: Literal["tupe"] | None = Field(
        None, description="a published preparation; sets the settings that are not given themselves"
    )
    corpus: tuple[str, ...] = Field(
        (PYTHON_DOCS,),
        description="sources [KIND:]PLACE[:key=value]..., read one after the other",
    )
    damaged_files: DamagedFiles = Field(
        "stop", description="what happens at a file that is cut short, damaged or no text"
    )
    max_skipped: float = Field(
        0.02,
        ge=0,
        le=1,
        description="stop where a larger share of the lines or documents of a source is skipped",
    )
    max_words: int | None = Field(
        None, ge=1, description="stop reading after this many words, repetitions included"
    )
    unicode_form: UnicodeForm = Field("NFC", description="Unicode normalisation of the text")
    remove_control_characters: bool = Field(
        True, description="remove control characters such as NUL"
    )
    min_document_characters: int = Field(0, ge=0, description="drop documents that are shorter")
    min_letter_ratio: float = Field(
        0.0, ge=0, le=1, description="drop paragraphs with a smaller share of letters and spaces"
    )
    deduplicate: Deduplication = Field(
        "paragraphs",
        description="drop exact repetitions of documents, or of documents and of paragraphs",
    )
    sentences: SentenceSplitter = Field("sentencex", description="what cuts text into sentences")
    language: str = Field("en", description="language code, for the sentences and Moses")
    moses: bool = Field(
        False, description="normalise punctuation and cut words with Moses, before the tokenizer"
    )
    tokenizer: str = Field(
        "wordpiece",
        description="trained: wordpiece, bpe or byte-bpe; or loaded: a tokenizer.json, a "
        "vocab.txt, a folder that holds one, or a name on the Hugging Face Hub",
    )
    lowercase: bool = Field(
        True, description="lowercase and strip accents, in a tokenizer that is trained"
    )
    tokenizer_sample_characters: int = Field(
        100_000_000, ge=1, description="about how many characters a tokenizer is trained on"
    )
    sequence_length: int = Field(
        512,
        ge=8,
        le=65536,
        description="tokens in a row (sequence length), [CLS] and [SEP] included",
    )
    valid_fraction: float = Field(
        0.02, gt=0, le=0.5, description="share of the documents that is held out for validation"
    )

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
        8192, ge=200, description="vocabulary size of a tokenizer that is trained, at most"
    )
    rows_per_shard: int = Field(65536, ge=1, description="upper bound of the rows in one file")
