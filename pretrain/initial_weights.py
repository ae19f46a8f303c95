"""Start a run from weights that exist (`initial_weights`), or refuse with what does not fit.

Only step 0 does: a resumed run has weights of its own. The optimizer and the schedules start anew.
"""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from data_prep.manifest import NEEDED_TOKENS, TOKENIZER_FILE, TokenizerRecord
from data_prep.shards import ShardSet
from pretrain.config import ConfigError, ModelSettings, RunSettings
from pretrain.model.encoder import MaskedLanguageModel
from pretrain.pretrained import Pretrained, load_pretrained
from pretrain.words import Words

# Settings that change neither what a weight means nor how many there are.
FREE = {"preset", "dropout", "attention_dropout", "initializer_range"}
RELATIVE = {"relative_buckets", "relative_max_distance"}


def load_initial_weights(
    model: MaskedLanguageModel, settings: RunSettings, shards: ShardSet
) -> dict[str, Any] | None:
    """Give a new model the weights that the settings name.

    Args:
        model: whole, on the host: call this before the engine takes it, on the first rank.
        settings: of the run.
        shards: that it reads.

    Returns:
        Where they come from, for launches.jsonl; None where the settings name none.

    Raises:
        ConfigError: there are none, or they are those of another model or of other words.
        ShardError: the manifest or the tokenizer of the run that is named is damaged.
        TokenizerError: the tokenizer of the model of others that is named cannot be used.
    """
    if settings.initial_weights is None:
        return None
    pretrained = load_pretrained(settings.initial_weights)
    check_model(pretrained, settings.model)
    check_words(pretrained, settings, shards)
    model.load_state_dict(pretrained.weights)
    return {"place": pretrained.place, "name": pretrained.name, "step": pretrained.step}


def check_model(pretrained: Pretrained, model: ModelSettings) -> None:
    """Check that the weights are those of a model of these settings.

    Raises:
        ConfigError: they are not; names every setting that differs, and the options to give.
    """
    theirs, ours = pretrained.model.model_dump(), model.model_dump()
    free = set(FREE)
    if not any(".relative." in name for name in pretrained.weights):
        free |= RELATIVE
    different = [name for name in ours if name not in free and ours[name] != theirs[name]]
    if different:
        described = ", ".join(
            f"model.{name}={theirs[name]} there and {ours[name]} here" for name in different
        )
        options = " ".join(f"--model.{name} {theirs[name]}" for name in different)
        raise ConfigError(
            f"initial_weights={pretrained.place} is another model: {described}; give {options}"
        )


def check_words(pretrained: Pretrained, settings: RunSettings, shards: ShardSet) -> None:
    """Check that an id means the same word in the rows of this run as to the weights.

    Raises:
        ConfigError: it does not; says how to build rows for which it does.
    """
    record = shards.manifest.tokenizer
    problem = _other_words(
        pretrained.words, Tokenizer.from_file(str(shards.tokenizer_path)), record
    )
    if problem is None:
        return
    options = ["--data.tokenizer", _tokenizer_place(pretrained.place)]
    if pretrained.words.record.moses != record.moses:
        options += ["--data.moses", str(pretrained.words.record.moses is not None).lower()]
    if settings.data.shards is not None:
        options += ["--data.shards", "none"]
    raise ConfigError(
        f"the rows in {shards.folder} have other words than initial_weights={pretrained.place}: "
        f"{problem}; make rows that fit with {' '.join(options)}"
    )


def _other_words(words: Words, tokenizer: Tokenizer, record: TokenizerRecord) -> str | None:
    """Return how the tokenizer of the rows differs from that of the weights, or None."""
    theirs = words.tokenizer.get_vocab(with_added_tokens=True)
    ours = tokenizer.get_vocab(with_added_tokens=True)
    if theirs != ours:
        token = min(token for token in theirs | ours if theirs.get(token) != ours.get(token))
        return (
            f"{sum(theirs.get(token) == number for token, number in ours.items()):,} of "
            f"{len(ours):,} entries have the same id; {token!r} is {ours.get(token)} in the rows "
            f"and {theirs.get(token)} to the weights"
        )
    for role in NEEDED_TOKENS:
        if words.special[role] != record.special_tokens[role]:
            return f"the {role} token is {record.special_tokens[role]}, not {words.special[role]}"
    if words.record.moses != record.moses:
        described = [
            "by Moses" if moses else "without Moses" for moses in (record.moses, words.record.moses)
        ]
        return f"they were cut {described[0]}, the weights know words cut {described[1]}"
    return None


def _tokenizer_place(place: str) -> str:
    """Return what `data.tokenizer` can load; a checkpoint has its tokenizer in the run folder."""
    path = Path(place)
    for folder in (path, path.parent, path.parent.parent):
        if (folder / TOKENIZER_FILE).is_file():
            return str(folder / TOKENIZER_FILE)
    return place
