"""Write a fine-tuned model as a folder that Hugging Face's transformers loads, and compare both.

    tupelo finetune export runs/NAME --to my_classifier

MODEL is a folder that fine-tuning kept, or any folder above it that holds no other. `bert-a` with
norm=post becomes a `BertForSequenceClassification`; other variants carry their own code.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo finetune export`."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of a fine-tuned model")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="folder to write")
    parser.add_argument(
        "--licence",
        metavar="NAME",
        help="for the card, as the Hub calls it (apache-2.0); default: that of the training data",
    )


def main(arguments: argparse.Namespace) -> None:
    """Export a model; print the folder and the largest difference to the trainer."""
    # Imported late: torch takes seconds.
    from finetune.models.classifier_format import stock_classifier
    from finetune.models.export import export_classifier
    from finetune.models.kept_model import kept_folder, read_model
    from pretrain.convert.exports.model_card import CARD_FILE

    kept = read_model(kept_folder(arguments.model))
    check = export_classifier(kept, arguments.to, arguments.licence)
    stock = stock_classifier(kept.record)
    kind = "with its own code" if stock is None else f"a stock {stock.architecture}"
    print(f"exported {kept.record.describe()} to {arguments.to}: {kind}")
    print(
        f"largest difference to the trainer: {check.largest_difference:.2g} in "
        f"{check.num_logits:,} outputs"
    )
    if kept.record.tokenizer.moses is not None:
        print(f"note: the tokenizer expects text after Moses; see {arguments.to / CARD_FILE}")
