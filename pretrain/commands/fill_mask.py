"""Print the most probable tokens of a trained encoder for each [MASK] of a text.

tupelo fill-mask runs/NAME "Paris is the [MASK] of France."
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tupelo fill-mask`."""
    parser.add_argument("run", help="run (newest checkpoint), checkpoint, export or external model")
    parser.add_argument("text", nargs="+", help="text with one or more [MASK]")
    parser.add_argument("--top", type=int, default=5, help="guesses per mask (default: 5)")


def main(arguments: argparse.Namespace) -> None:
    """Print the guesses for every mask of the text."""
    # Imported late: torch takes seconds.
    from data_prep.text.text_encoder import MASK
    from pretrain.convert.fill_mask import fill_mask
    from pretrain.convert.pretrained import load_pretrained, restored_network

    pretrained, text = load_pretrained(arguments.run), " ".join(arguments.text)
    step = "" if pretrained.step is None else f", step {pretrained.step:,}"
    print(f"{pretrained.name}{step}: {text}")
    guesses_of_masks = fill_mask(
        restored_network(pretrained),
        pretrained.text_encoder,
        text,
        top=arguments.top,
        longest_row=pretrained.sequence_length,
    )
    for number, guesses in enumerate(guesses_of_masks, start=1):
        print(f"{MASK} {number}")
        for guess in guesses:
            print(f"  {guess.probability:7.2%}  {guess.token}")
