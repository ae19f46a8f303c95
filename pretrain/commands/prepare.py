"""Build the shards that a recipe needs, unless they are there."""

import argparse
from pathlib import Path

from pydantic_settings import CliSettingsSource

from data_prep.pipeline.build import build
from data_prep.sources.source import CorpusError
from data_prep.sources.spec import describe
from pretrain.config.recipe import add_settings, read_settings
from pretrain.config.settings import RunSettings
from pretrain.convert.initial_weights import check_before_build
from pretrain.data.shards import build_settings, open_data, shards_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo prepare`."""
    parser.set_defaults(source=add_settings(parser))


def main(arguments: argparse.Namespace) -> None:
    """Build the shards of the recipe, or check that the existing ones fit it."""
    source: CliSettingsSource[argparse.ArgumentParser] = arguments.source
    settings = read_settings(arguments, source)
    folder = shards_folder(settings)
    if settings.data.shards is None and not folder.exists():
        check_before_build(settings)
        build(build_settings(settings), folder)
    manifest = open_data(settings).manifest
    if settings.data.shards is None:
        _warn_of_changed_text(manifest.source, settings, folder)
    counts = manifest.splits
    described = ", ".join(f"{split} {counts[split].rows:,} rows" for split in counts)
    print(f"shards in {folder}: {described} of {settings.data.sequence_length} tokens")


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
