"""Names that do not exist: the most similar one; what became of settings, values and commands.

A file that holds a removed setting at the value that it had by default is read as if it did not.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from data_prep.files.errors import ConfigError
from data_prep.files.quoting import plain, quoted

LONGEST_COMPARED = 200  # difflib would take minutes for a long text
MOST_NAMED = 4  # of names that begin as the given one does


class Removed(NamedTuple):
    """A setting, a section of them, a value or a command that is no more."""

    instead: str  # what to do
    default: Any = ...  # what changes nothing; ...: no value changed a result


REMOVED = {
    "watchdog": Removed("remove it: stacks are printed where a step hangs for 8 minutes"),
    "trouble.overflow_streak": Removed("remove it: 20 overflows in a row are a streak"),
    "trouble.skip_steps": Removed("remove it: a rewind leaves out the sequences of the step alone"),
    "trouble.max_rewinds": Removed("remove it: a run stops after 3 rewinds to one checkpoint"),
    "trouble.spike_factor": Removed("remove it: a spike is a loss above twice the median"),
    "trouble.hang_minutes": Removed("remove it: it is always 8 minutes"),
    "restarts_after": Removed("remove it: schedules do not restart", []),
    "log_project": Removed("remove it: WANDB_PROJECT names the project of W&B"),
    "mlflow": Removed("remove it from loggers"),
    "muon": Removed("start a new run with torch; CONTRIBUTING.md adds optimizers"),
    "checkpoint.keep_every": Removed("name the steps in checkpoint.pinned"),
    "checkpoint.background": Removed("remove it: training continues while a checkpoint is written"),
    "data.max_skipped": Removed("use data.damaged_files"),
    "data.unicode_form": Removed("remove it: the form is NFC", "NFC"),
    "data.remove_control_characters": Removed("remove it: they are removed", True),
    "data.min_document_characters": Removed("filter the text before", 0),
    "data.min_letter_ratio": Removed("filter the text before", 0.0),
    "data.tokenizer_sample_characters": Removed("remove it: it is 100,000,000", 100_000_000),
    "data.mean_span_words": Removed("remove it: it is 3.8", 3.8),
    "data.loader_workers": Removed("remove it: a rank prepares its batches, in 1 % of its time"),
    "data.mask_token_share": Removed("use data.mask_shares"),
    "data.random_token_share": Removed("use data.mask_shares"),
    "model.preset": Removed("give num_layers, width and num_heads; the defaults are Base", None),
    "electra.generator_layers": Removed("remove it: both networks have as many", 1.0),
    "electra.generator_weight": Removed("remove it: it is 1", 1.0),
    "electra.discriminator_weight": Removed("remove it: it is 50", 50.0),
    "engine.bf16_residual_stream": Removed("remove it: the residual stream is fp32", False),
    "layer_drop.draws": Removed("give their number as layer_drop.draw_per", 1),
    "layer_drop.draw_per='sequence'": Removed(
        "a draw for each sequence cost as much as it saved; give micro_batch, step or a number"
    ),
}

# What earlier versions wrote as null.
NULLS = {"batch.micro_sequences": "auto", "layer_drop.gamma": "auto"}

# Of command lines alone: in a file they are unknown settings.
REMOVED_WORDS = {
    "plan": Removed("use tupelo train RECIPE --dry-run --measure 60"),
    **dict.fromkeys(
        ("lr", "learning_rate"),
        Removed("use --learning_rate.peak, or --learning_rates of finetune run"),
    ),
    "batch_size": Removed("use --batch.global_sequences, or --batch of finetune run"),
    "minutes": Removed("use --hours, such as 0.1"),
    "epochs": Removed("use --steps, or --epochs of finetune run"),
}
KNOWN_ONCE = {**REMOVED, **REMOVED_WORDS}


def nearest(name: str, known: Sequence[str], removed: Mapping[str, Removed] = KNOWN_ONCE) -> str:
    """Return "; did you mean X?" for the names that begin so or the most similar one, or nothing.

    For one of those that are no more (`removed`; {} for names of the user), what to do instead.
    """
    bare = name.lstrip("-")
    gone = removed.get(bare.replace("-", "_"), removed.get(bare.partition(".")[0]))
    if gone is not None:
        return f"; {gone.instead}"
    by_bare = {one.lstrip("-"): one for one in known}
    begun = [one for one in by_bare if one.startswith(bare)][:MOST_NAMED]
    found = begun or difflib.get_close_matches(bare[:LONGEST_COMPARED], by_bare, n=1)
    return f"; did you mean {plain(' or '.join(by_bare[one] for one in found))}?" if found else ""


def without_removed(tree: Mapping[str, Any], *, refuses: bool = True) -> dict[str, Any]:
    """Return the settings of a file, by section, as this version names them.

    Args:
        tree: what the file holds.
        refuses: whether one that is no more, with another value than its default, is refused; else
            it is kept as it is, of a run that is only looked at.

    Raises:
        ConfigError: there is such a setting.
    """
    kept = {key: value for key, value in tree.items() if _stays(key, value, refuses)}
    match kept:
        case {"layer_drop": {"schedule": "reverse", "gamma": None} as drop, "steps": n} if n:
            kept["layer_drop"] = {**drop, "gamma": 100 / n}  # with which it began
    merged = {key: _merged(key, value, refuses) for key, value in kept.items()}
    if isinstance(merged.get("loggers"), list):
        merged["loggers"] = [name for name in merged["loggers"] if str(name) not in REMOVED]
    return merged


def _merged(section: str, values: Any, refuses: bool) -> Any:
    """Return a section with the settings that took the place of several, and without these."""
    if not isinstance(values, dict):
        return values
    found = {n: NULLS.get(f"{section}.{n}") if one is None else one for n, one in values.items()}
    if section == "layer_drop" and found.get("draw_per") not in (None, "micro_batch"):
        draws = found.pop("draws", 1)
        found["draw_per"] = found["draw_per"] if draws == 1 else draws
    if section == "model" and {"num_layers", "width", "num_heads"} <= found.keys():
        found.pop("preset", None)  # of a run, which has its numbers too
    if section == "engine" and found.get("attention") == "folded":
        found["attention"] = "auto"  # the same formula
    shares = [found.get(f"{kind}_token_share") for kind in ("mask", "random")]
    if section == "data" and shares != [None, None]:
        stated = found.get("mask_shares")
        usual = stated if isinstance(stated, list) and len(stated) == 2 else (0.8, 0.1)
        found["mask_shares"] = [
            share if given is None else given for share, given in zip(usual, shares, strict=True)
        ]
    return {n: value for n, value in found.items() if _stays(f"{section}.{n}", value, refuses)}


def _stays(name: str, value: Any, refuses: bool) -> bool:
    removed = REMOVED.get(name)
    if removed is None or removed.default in (..., value):
        return removed is None
    if refuses:
        raise ConfigError(f"{name}={quoted(value)} is no longer a setting; {removed.instead}")
    return True
