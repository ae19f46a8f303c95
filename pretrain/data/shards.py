"""The shards of a run: which folder, whether they fit the model, how they are masked."""

import hashlib
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
from pydantic_core import to_json

from data_prep.files.program import shell_command
from data_prep.files.quoting import quoted
from data_prep.masking import BERT_MASKING, Masking
from data_prep.settings import STOPPING_SETTINGS, BuildSettings, TextSettings
from data_prep.shards.format import ShardSet, open_shards
from data_prep.shards.manifest import REBUILD, Manifest, ShardError, TokenizerKind
from data_prep.sources.source import CorpusError, FileSource, file_size
from data_prep.tokenizer.describe import (
    TokenizerError,
    holes_of,
    read_tokenizer,
    vocabulary_size,
    word_starts,
)
from data_prep.tokenizer.load import load_tokenizer
from pretrain.config.errors import ConfigError
from pretrain.config.settings import (
    DEFAULT_OBJECTIVE,
    OF_TEXT,
    REPLACED_TOKEN_DETECTION,
    DataSettings,
    RunSettings,
    explained,
)
from pretrain.config.settings.transformers_config import with_special_ids

# The masks of the held-out sequences are the same for every run, whatever its seed.
HELD_OUT_SEED = 0

# What folders of shards are named after too: settings that are no more, each with the value that it
# always has now, by the setting that followed them.
FORMER_SETTINGS: dict[str, dict[str, Any]] = {
    "deduplicate": {
        "unicode_form": "NFC",
        "remove_control_characters": True,
        "min_document_characters": 0,
        "min_letter_ratio": 0.0,
    },
    "sequence_length": {"tokenizer_sample_characters": 100_000_000},
}

BERT_SHARES = BERT_MASKING.mask_token_share, BERT_MASKING.random_token_share


def build_settings(settings: RunSettings) -> BuildSettings:
    """Return what `data_prep` is asked to build for this run.

    Raises:
        ConfigError: a value is outside of what can be built.
    """
    data = settings.data
    if not data.corpus:
        raise ConfigError("this recipe names no text; give yours with --corpus PATH...")
    text = data.model_dump(include=set(TextSettings.model_fields))
    least = 0 if data.tokenizer in get_args(TokenizerKind) else 200  # loaded: of any size
    with explained("these shards cannot be built: "):
        return BuildSettings(**text, vocabulary_size=max(least, settings.model.vocabulary_size))


def shards_folder(settings: RunSettings) -> Path:
    """Return `data.shards`, or a folder named after everything that determines the shards.

    Raises:
        ConfigError: neither shards nor a corpus that can be built from are given.
    """
    if settings.data.shards is not None:
        return settings.data.shards
    build = build_settings(settings)
    content: dict[str, Any] = {}
    build = build.model_copy(update={"language": build.rules_language})  # as it was always given
    for name, value in build.model_dump(mode="json", exclude=set(STOPPING_SETTINGS)).items():
        if name != "strip_accents" or value is not None:  # it is younger than the names
            content |= {**FORMER_SETTINGS.get(name, {}), name: value}
    digest = hashlib.sha256(to_json(content)).hexdigest()[:8]
    corpus = re.sub(r"[^\w-]+", "-", Path(build.corpus[0]).name.partition(".")[0])
    return Path("data") / f"{corpus}-s{build.sequence_length}-v{build.vocabulary_size}-{digest}"


def existing_shards(settings: RunSettings) -> ShardSet | None:
    """Open the shards of a run; None if they are still to be built.

    Raises:
        ConfigError: `data.shards` names a folder that is not there, or they do not fit the model.
        ShardError: they are damaged.
    """
    data = settings.data
    if data.shards is None and not (data.corpus and shards_folder(settings).is_dir()):
        return None
    return open_data(settings)


def check_text(settings: RunSettings) -> None:
    """Check, before shards are built, that there is text and that its tokenizer fits the model.

    Raises:
        ConfigError: no text is named, or a tokenizer with more entries than the model has.
        CorpusError: the text does not exist, or its files are empty.
        TokenizerError: the tokenizer cannot be loaded.
    """
    # Imported late: on shards that exist, a run needs no packages that read text.
    from data_prep.sources.spec import open_sources

    build = build_settings(settings)
    for source in open_sources(build.corpus, build.damaged_files):
        if isinstance(source, FileSource) and not any(map(file_size, source.files)):
            raise CorpusError(f"{source.name} is empty; name a text")
    if build.tokenizer not in get_args(TokenizerKind):
        entries = vocabulary_size(load_tokenizer(build.tokenizer))
        _check_vocabulary(f"the tokenizer {build.tokenizer}", entries, settings)


def open_data(settings: RunSettings) -> ShardSet:
    """Open the shards of a run and check that they fit its model.

    Raises:
        ConfigError: they are missing, or of another text, sequence length or too large a
            vocabulary, or cannot be masked as asked.
        ShardError: they are damaged.
    """
    folder = shards_folder(settings)
    if not folder.is_dir():
        command = f"{shell_command('prepare', 'RECIPE')}, with the same settings"
        if settings.data.shards is not None:
            command = f"{shell_command('data', 'build', '--to', folder)}, or leave data.shards out"
        raise ConfigError(f"there are no shards in {folder}; build them with: {command}")
    shards = open_shards(folder)
    manifest = shards.manifest
    if manifest.sequence_length != settings.data.sequence_length:
        raise ConfigError(
            f"the sequences in {folder} have {manifest.sequence_length} tokens, but "
            f"data.sequence_length={settings.data.sequence_length}; give "
            f"--data.sequence_length {manifest.sequence_length}"
        )
    _check_vocabulary(f"the tokenizer in {folder}", manifest.tokenizer.vocabulary_size, settings)
    data = settings.data
    given = {*OF_TEXT} & data.model_fields_set if data.shards is not None else set()
    for name, value in data.model_dump(mode="json", include=given).items():
        if value not in ([], said := manifest.settings.get(name)):
            raise ConfigError(
                f"data.{name}={quoted(value)} has no effect on the shards in {folder}, which have "
                f"{quoted(said)}; remove it, or let other shards be built: --data.shards none"
            )
    if (starts := masking_of(shards, settings).word_starts) is not None:
        some = np.arange(min(64, shards.split("valid").num_sequences))
        share = starts[shards.split("valid").read(some)[:, 1:-1]].mean()
        if share < 0.1:
            raise ConfigError(
                f"data.masking={data.masking!r}: a word of this text has {1 / share:.0f} tokens on "
                "average, as in writing without spaces; give --data.masking tokens"
            )
    return shards


def with_text_of(settings: RunSettings, manifest: Manifest) -> RunSettings:
    """Return settings that say of their text what the manifest of the shards says.

    Raises:
        ShardError: the manifest holds settings that cannot be.
    """
    if settings.data.shards is None:
        return settings
    said = {name: value for name, value in manifest.settings.items() if name in OF_TEXT}
    lead = f"{settings.data.shards}: the manifest holds "
    with explained(lead, end=f"; {REBUILD}", kind=ShardError):
        data = DataSettings(**{**settings.data.model_dump(), "corpus": (), **said})
    return settings.model_copy(update={"data": data})


def masking_of(shards: ShardSet, settings: RunSettings) -> Masking:
    """Return what is hidden in the sequences of these shards.

    Raises:
        ConfigError: their tokens do not show where a word starts.
    """
    data, starts = settings.data, None
    tokenizer = read_tokenizer(shards.tokenizer_path)
    if data.masking != "tokens":
        try:
            starts = word_starts(tokenizer)
        except TokenizerError as error:
            raise ConfigError(f"data.masking={data.masking!r}: {error}") from None
    return Masking(
        data.masking,
        data.masked_probability,
        word_starts=starts,
        mask_token_share=data.mask_shares[0],
        random_token_share=data.mask_shares[1],
        holes=holes_of(tokenizer),
    )


def with_tokenizer(settings: RunSettings, shards: ShardSet) -> RunSettings:
    """Return the settings; a new model of transformers pads with the padding of the tokenizer."""
    config = settings.model.transformers
    if not isinstance(config, dict) or settings.model.folder is not None:
        return settings
    config = with_special_ids(config, shards.manifest.tokenizer.special_tokens)
    model = settings.model.model_copy(update={"transformers": config})
    return settings.model_copy(update={"model": model})


def held_out_fingerprint(shards: ShardSet, settings: RunSettings) -> str:
    """Return a hash of everything that a held-out loss depends on besides the model.

    That of replaced-token detection depends on the generator: what it draws is the input.
    """
    from pretrain.model.objectives.catalog import objective_of  # torch: builds need none

    held_out_loss = objective_of(settings.model, settings.objective).held_out_loss
    shares = settings.data.mask_shares
    # The share of its blocks, and the weights of both losses, were settings.
    electra = (settings.electra.generator_width, 1.0, 1.0, 50.0)
    parts = (
        shards.split("valid").fingerprint(),
        num_held_out_sequences(shards, settings),
        settings.data.masked_probability,
        settings.data.masking,
        BERT_MASKING.mean_span_words,
        HELD_OUT_SEED,
        # Runs older than these settings have none of them in their fingerprint.
        *([] if held_out_loss == DEFAULT_OBJECTIVE else [held_out_loss]),
        *([] if shares == BERT_SHARES else shares),
        *(electra if settings.objective == REPLACED_TOKEN_DETECTION else []),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def num_held_out_sequences(shards: ShardSet, settings: RunSettings) -> int:
    """Return how many held-out sequences an evaluation reads."""
    return min(settings.evaluation.rows, shards.split("valid").num_sequences)


def _check_vocabulary(tokenizer: str, entries: int, settings: RunSettings) -> None:
    if entries > settings.model.vocabulary_size:
        raise ConfigError(
            f"{tokenizer} has {entries} entries, more than model.vocabulary_size="
            f"{settings.model.vocabulary_size}; give --model.vocabulary_size {entries} or more"
        )
