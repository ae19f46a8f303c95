"""Tokenize a text corpus into a new shard folder.

    tupelo data build --to data/docs
    tupelo data build --to data/mine --corpus my_texts/ wiki.jsonl.gz:weight=2
    tupelo data build --to data/tupe --data.preset tupe --corpus articles/

Reads the corpus, cleans and deduplicates it, holds out validation documents, trains a tokenizer (or
loads one), and packs the token ids of the documents into sequences of fixed length without padding.
Masks are drawn during training. The same command resumes a stopped build.

A source of --corpus is [KIND:]PLACE[:key=value]...

    KIND   text, jsonl, csv, parquet, wikiextractor (its output), hub (a data
           set of the Hugging Face Hub) or python-docs (the docstrings of
           installed modules, no PLACE); detected from PLACE if left out
    key    weight=2.5      uses of a training document in an epoch
           column=text     the column of the text, in jsonl, csv, parquet, hub
           documents=line  what ends a document, in text: blank_line, line, file
           config=NAME, split=NAME, revision=NAME   of a data set on the hub
"""

import argparse
from typing import get_args

from data_prep.command_line import CommandParser
from data_prep.commands.options import FIELDS, add_options, read_settings
from data_prep.files.errors import ConfigError
from data_prep.settings import BuildSettings, TextSettings


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo data build`."""
    add_options(parser, "--to", "--workers")
    parser.add_argument("--corpus", nargs="+", action="extend", metavar="SOURCE", help="the text")
    sections = {"data": str(TextSettings.__doc__), "model": "The size of the tokenizer."}
    usual = BuildSettings().model_dump()
    values = {name: usual[name.rpartition(".")[2]] for name in FIELDS}
    parser.add_settings(FIELDS, sections, lambda _: ("those of a build", values))
    parser.usage = f"{parser.prog} --to FOLDER [--corpus SOURCE ...] [--section.setting VALUE ...]"


def main(arguments: argparse.Namespace) -> None:
    """Build the shards.

    Raises:
        ConfigError: a setting cannot be.
    """
    from data_prep.pipeline.build import build
    from data_prep.shards.manifest import TokenizerKind

    others = {"corpus": tuple(arguments.corpus)} if arguments.corpus else {}
    settings = read_settings(arguments, others)
    if "model.vocabulary_size" in arguments and settings.tokenizer not in get_args(TokenizerKind):
        raise ConfigError(
            "model.vocabulary_size has no effect on a tokenizer that is loaded; remove one of them"
        )
    build(settings, arguments.to, workers=arguments.workers)
