"""Builds the shards of a run, or checks that those that exist fit it."""

from pathlib import Path

from data_prep.pipeline.build import build
from data_prep.sources.source import CorpusError
from data_prep.sources.spec import describe
from pretrain.config.settings import RunSettings
from pretrain.data.shards import build_settings, existing_shards, open_data, shards_folder
from pretrain.train.checks import check_data


def prepare(settings: RunSettings) -> str:
    """Build the shards unless they are there, and return what they are, in words.

    Raises:
        UserError: they cannot be built, or do not fit the run.
    """
    check_data(settings)
    folder = shards_folder(settings)
    shards = existing_shards(settings)
    if shards is None:
        build(build_settings(settings), folder)
        shards = open_data(settings)
    manifest = shards.manifest
    if settings.data.shards is None:
        _warn_of_changed_text(manifest.source, settings, folder)
    counts = manifest.splits
    described = ", ".join(f"{split} {counts[split].rows:,} rows" for split in counts)
    return f"shards in {folder}: {described} of {settings.data.sequence_length} tokens"


def _warn_of_changed_text(source: str, settings: RunSettings, folder: Path) -> None:
    try:
        now = describe(settings.data.corpus)
    except CorpusError:
        now = "nowhere: it is gone"
    if now != source:
        print(
            f"note: the text has changed since {folder} was built (then {source}; now {now}); "
            "remove that folder to build it again"
        )
