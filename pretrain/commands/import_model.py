"""Convert a BERT, or a checkpoint of the TUPE authors' code, into an export.

    tupelo import bert-base-uncased --to models/bert
    tupelo import tupe_r.pt --to tupe

The folder can be trained further with its recipe.toml, fine-tuned, and loaded by transformers.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo import`."""
    parser.add_argument(
        "place",
        help="a BERT folder of transformers, a name on the Hub, or a .pt file of the TUPE authors' "
        "code",
    )
    parser.add_argument("--to", type=Path, required=True, help="the new folder")


def main(arguments: argparse.Namespace) -> None:
    """Read the model, check it, write it, and print what to do next."""
    # Imported late: torch takes seconds.
    from pretrain.convert.external.import_model import import_model

    import_model(arguments.place, arguments.to)
