"""A smoke test of a sweep: arms so small that all of it takes a minute on two slow cores."""

import argparse
from pathlib import Path

from pretrain.launching.given_words import laid_under

NOTE = (
    "a smoke test: tiny models, a few steps, a small text; it shows that everything works on this "
    "machine, and its numbers mean nothing"
)

# Laid over every recipe, as the words of a command line.
_SETTINGS = {
    "steps": "30",
    "hours": "none",
    "restarts_after": "none",
    "initial_weights": "none",
    "log_every_steps": "10",
    "model.num_layers": "4",  # the least of which a stage of layer drop can be the half
    "model.width": "32",
    "model.num_heads": "2",
    "model.feedforward_width": "64",
    "batch.global_sequences": "32",
    "batch.micro_sequences": "auto",
    "evaluation.every_steps": "10",
    "evaluation.rows": "64",
    "checkpoint.every_steps": "1000",
}
_DATA_SETTINGS = {
    "data.shards": "none",
    "data.tokenizer": "wordpiece",
    "data.sequence_length": "64",
    "model.max_sequence_length": "64",
    "model.vocabulary_size": "1024",
}


def shrunk(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return a command line with the settings of a smoke test; those that it gives stay.

    With `--data.shards` the settings of the data stay those of the recipes.
    """
    given = vars(arguments)
    settings: dict[str, object] = dict(_SETTINGS)
    if given.get("data.shards") is None:
        settings |= _DATA_SETTINGS
        if not arguments.corpus and given.get("data.corpus") is None:
            settings["corpus"] = [_small_text()]
    return laid_under(arguments, settings)


def _small_text() -> str:
    """Return a source of 0.7 MB that every Python has: the help of its own language."""
    import pydoc_data

    folder = Path(pydoc_data.__path__[0])
    return f"text:{folder / 'topics.py'}:documents=line"
