"""Write a trained encoder as a folder that Hugging Face's transformers loads, and compare both.

    tupelo export runs/NAME
    tupelo export runs/NAME --checkpoint 10000 --to my_model

`bert-a` with norm=post becomes a `BertForMaskedLM` (ELECTRA: its discriminator, an
`ElectraForPreTraining`); other variants carry their own code.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo export`."""
    parser.add_argument("run", type=Path, help="run folder, or one of its checkpoint folders")
    parser.add_argument("--to", type=Path, help="new folder; default: RUN/export/step_00010000")
    parser.add_argument("--checkpoint", help="step of the run, such as 10000; default: the newest")


def main(arguments: argparse.Namespace) -> None:
    """Export a run; print the folder and the largest difference to the trainer."""
    # Imported late: torch takes seconds.
    from pretrain.convert.exports.export import export, run_of
    from pretrain.convert.pretrained import load_pretrained
    from pretrain.convert.stock_models import stock_architecture

    run = run_of(arguments.run)
    pretrained = load_pretrained(arguments.run, checkpoint=arguments.checkpoint)
    target = arguments.to or run / "export" / Path(pretrained.place).name
    check = export(pretrained, run, target)
    stock = stock_architecture(pretrained.model, pretrained.objective)
    kind = "with its own code" if stock is None else f"a stock {stock}"
    print(f"exported {pretrained.name}, step {pretrained.step:,}, to {target}: {kind}")
    print(
        f"largest difference to the trainer: {check.largest_difference:.2g} in "
        f"{check.num_logits:,} logits"
    )
