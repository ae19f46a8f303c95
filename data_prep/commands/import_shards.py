"""Convert the HDF5 shards of NVIDIA's BERT, bing_bert or 24hBERT.

    tupelo data import theirs/ --tokenizer vocab.txt --to data/theirs

Restores the words that static masking hid, drops copies that differ in their masks only, and packs
sequences for dynamic masking, of the length of theirs unless another is given.
"""

import argparse
from pathlib import Path

from data_prep.command_line import add_setting
from data_prep.commands.options import FIELDS, add_rows_per_shard, add_to, read_settings

SETTINGS = ("data.sequence_length", "data.valid_fraction", "data.damaged_files")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo data import`."""
    parser.add_argument(
        "places", nargs="+", type=Path, metavar="FILES_OR_FOLDER", help="HDF5 files with input_ids"
    )
    add_to(parser)
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="PLACE",
        help="that of these shards: a vocab.txt, a tokenizer.json, a folder with one, or a name on "
        "the Hugging Face Hub",
    )
    parser.add_argument("--keep-duplicates", action="store_true", help="keep duplicate texts")
    add_rows_per_shard(parser)
    for name in SETTINGS:
        add_setting(parser, name, FIELDS[name])


def main(arguments: argparse.Namespace) -> None:
    """Write the new folder, and print a summary of it."""
    from data_prep.shards.manifest import summary
    from data_prep.tools.import_shards import ImportSettings, import_shards

    given = read_settings(arguments)
    settings = ImportSettings(
        arguments.tokenizer,
        given.sequence_length if "sequence_length" in given.model_fields_set else None,
        given.valid_fraction,
        arguments.keep_duplicates,
        given.damaged_files,
        arguments.rows_per_shard,
    )
    manifest = import_shards(arguments.places, arguments.to, settings)
    print(f"{arguments.to}\n{summary(manifest)}")
