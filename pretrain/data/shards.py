"""The shards of a run: which folder, whether they fit the model, how they are masked."""

import hashlib
import re
from pathlib import Path

from pydantic import ValidationError

from data_prep.files.program import shell_command
from data_prep.masking import Masking
from data_prep.settings import BuildSettings, TextSettings
from data_prep.shards.format import ShardSet, open_shards
from data_prep.tokenizer.describe import TokenizerError, described_tokenizer, word_starts
from pretrain.config.errors import ConfigError
from pretrain.config.settings import DEFAULT_OBJECTIVE, RunSettings, explain

# The masks of the held-out rows are the same for every run, whatever its seed.
HELD_OUT_SEED = 0


def build_settings(settings: RunSettings) -> BuildSettings:
    """Return what `data_prep` is asked to build for this run.

    Raises:
        ConfigError: a value is outside of what can be built.
    """
    data = settings.data
    if not data.corpus:
        raise ConfigError("this recipe names no text; give yours with --corpus PATH...")
    text = data.model_dump(include=set(TextSettings.model_fields))
    try:
        return BuildSettings(**text, vocabulary_size=settings.model.vocabulary_size)
    except ValidationError as error:
        raise ConfigError(f"these shards cannot be built: {explain(error)}") from None


def shards_folder(settings: RunSettings) -> Path:
    """Return `data.shards`, or a folder named after everything that determines the shards.

    Raises:
        ConfigError: neither shards nor a corpus that can be built from are given.
    """
    if settings.data.shards is not None:
        return settings.data.shards
    build = build_settings(settings)
    # Whether a damaged file stops the build does not change the shards.
    content = build.model_dump_json(exclude={"damaged_files"})
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    corpus = re.sub(r"[^\w-]+", "-", Path(build.corpus[0]).name.partition(".")[0])
    return Path("data") / f"{corpus}-s{build.sequence_length}-v{build.vocabulary_size}-{digest}"


def open_data(settings: RunSettings) -> ShardSet:
    """Open the shards of a run and check that they fit its model.

    Raises:
        ConfigError: they are missing, or of another sequence length or too large a vocabulary, or
            cannot be masked as asked.
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
            f"the rows in {folder} have {manifest.sequence_length} tokens, but "
            f"data.sequence_length={settings.data.sequence_length}; make them equal"
        )
    if manifest.tokenizer.vocabulary_size > settings.model.vocabulary_size:
        raise ConfigError(
            f"the tokenizer in {folder} has {manifest.tokenizer.vocabulary_size} entries, more "
            f"than model.vocabulary_size={settings.model.vocabulary_size}; raise the latter"
        )
    masking_of(shards, settings)
    return shards


def masking_of(shards: ShardSet, settings: RunSettings) -> Masking:
    """Return what is hidden in the rows of these shards.

    Raises:
        ConfigError: their tokens do not show where a word starts.
    """
    data, starts = settings.data, None
    if data.masking != "tokens":
        tokenizer = described_tokenizer(shards.tokenizer_path, shards.manifest.tokenizer)
        try:
            starts = word_starts(tokenizer)
        except TokenizerError as error:
            raise ConfigError(f"data.masking={data.masking!r}: {error}") from None
    return Masking(data.masking, data.masked_probability, data.mean_span_words, starts)


def held_out_fingerprint(shards: ShardSet, settings: RunSettings) -> str:
    """Return a hash of everything that a held-out loss depends on besides the model."""
    from pretrain.model.objectives import objective_named  # torch: builds need none

    held_out_loss = objective_named(settings.objective).held_out_loss
    parts = (
        shards.split("valid").fingerprint(),
        num_held_out_rows(shards, settings),
        settings.data.masked_probability,
        settings.data.masking,
        settings.data.mean_span_words,
        HELD_OUT_SEED,
        # Runs older than the setting have no name in their fingerprint.
        *([] if held_out_loss == DEFAULT_OBJECTIVE else [held_out_loss]),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def num_held_out_rows(shards: ShardSet, settings: RunSettings) -> int:
    """Return how many held-out rows an evaluation reads."""
    return min(settings.evaluation.rows, shards.split("valid").num_rows)
