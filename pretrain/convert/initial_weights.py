"""Initialise a run from existing weights (`initial_weights`), or refuse those that do not fit.

Only step 0 does: a resumed run has its checkpoint. The optimizer and the schedules start anew.
"""

from pathlib import Path
from typing import Any, get_args

import torch

from data_prep.files.program import shell_command
from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import NEEDED_TOKENS, TOKENIZER_FILE
from data_prep.tokenizer.describe import described_tokenizer
from data_prep.tokenizer.load import load_tokenizer, special_names_beside
from data_prep.tokenizer.train import TokenizerKind
from pretrain.checkpoint.folders import CHECKPOINTS
from pretrain.config.errors import ConfigError, lookup
from pretrain.config.settings import (
    REPLACED_TOKEN_DETECTION,
    EncodingSettings,
    ModelSettings,
    RunSettings,
)
from pretrain.convert.external.external_model import text_encoder_of
from pretrain.convert.pretrained import Pretrained, load_pretrained
from pretrain.convert.text_encoder import PROBE_TEXTS, TextEncoder
from pretrain.data.frequencies import word_frequencies
from pretrain.model.objectives.objective import Objective
from pretrain.model.objectives.replaced_tokens import generator_settings
from pretrain.model.positions import POSITION_ENCODINGS

# Settings that change neither the meaning of a weight nor the shapes.
FREE = {
    *("preset", "dropout", "attention_dropout"),
    *("initializer_range", "branch_initialisation", "output_bias"),
}
# Those of the positions alone, which may be new.
OF_POSITIONS = {"positions", "max_sequence_length", *EncodingSettings.model_fields}
POSITIONS = ".positions."  # in the name of every weight that belongs to an encoding
ENTRIES_TRIED = 1000  # capitalised, in any script


def load_initial_weights(
    model: Objective, settings: RunSettings, shards: ShardSet
) -> dict[str, Any] | None:
    """Give a new model the weights that the settings name, or else its output bias.

    Args:
        model: whole, on the host: call this before the engine takes it, on the first rank.
        settings: of the run.
        shards: that it reads.

    Returns:
        Where they come from, for launches.jsonl; None where the settings name none.

    Raises:
        ConfigError: see `fitting_weights`, as for the other errors.
    """
    pretrained = fitting_weights(settings, shards)
    if pretrained is None:
        if settings.model.output_bias == "frequencies":
            set_bias_to_frequencies(model, shards, settings.model.vocabulary_size)
        return None
    model.load_state_dict(loaded_weights(pretrained, settings, model))
    return {"place": pretrained.place, "name": pretrained.name, "step": pretrained.step}


def set_bias_to_frequencies(model: Objective, shards: ShardSet, vocabulary_size: int) -> None:
    """Start the output bias at the logarithms of the frequencies of words in the training rows."""
    frequencies = word_frequencies(shards, vocabulary_size)
    model.set_output_bias(torch.from_numpy(frequencies).log())


def loaded_weights(
    pretrained: Pretrained, settings: RunSettings, model: Objective
) -> dict[str, torch.Tensor]:
    """Return a value of each weight of a new model: its own where positions are to be new."""
    if settings.initial_positions == "loaded":
        return dict(pretrained.weights)
    own = {name: value for name, value in model.state_dict().items() if POSITIONS in name}
    others = {name: value for name, value in pretrained.weights.items() if POSITIONS not in name}
    return {**others, **own}


def fitting_weights(settings: RunSettings, shards: ShardSet) -> Pretrained | None:
    """Return the weights that the settings name; None where they name none.

    Raises:
        ConfigError: there are none, or they are those of another model or another tokenizer.
        ShardError: the manifest or the tokenizer of the run that is named is damaged.
        TokenizerError: the tokenizer of an external model cannot be used.
    """
    if settings.initial_weights is None:
        return None
    pretrained = weights_for(settings, settings.initial_weights)
    check_tokenizer(pretrained, settings, shards)
    return pretrained


def weights_for(settings: RunSettings, place: str) -> Pretrained:
    """Return the weights at a place, checked against objective and model of the run.

    Raises:
        ConfigError: there are none, or they are those of another objective, model or generator.
    """
    pretrained = load_pretrained(place)
    if pretrained.objective != settings.objective:
        raise ConfigError(
            f"initial_weights={pretrained.place} were trained with objective="
            f"{pretrained.objective}, and this run has objective={settings.objective}; name "
            "weights of this objective"
        )
    check_model(pretrained, settings.model, new_positions=settings.initial_positions == "new")
    if settings.objective == REPLACED_TOKEN_DETECTION:
        _check_generator(pretrained, settings)
    return pretrained


def _check_generator(pretrained: Pretrained, settings: RunSettings) -> None:
    if pretrained.electra is None:
        raise ConfigError(
            f"initial_weights={pretrained.place} are the discriminator alone, and training needs "
            "the generator too; give the run or the checkpoint that it was exported from"
        )
    theirs, ours = (
        generator_settings(settings.model, electra)
        for electra in (pretrained.electra, settings.electra)
    )
    if theirs.width != ours.width:
        raise ConfigError(
            f"initial_weights={pretrained.place} has another generator, of width {theirs.width} "
            f"there and {ours.width} here; give --electra.generator_width "
            f"{pretrained.electra.generator_width:g}"
        )


def check_model(
    pretrained: Pretrained, model: ModelSettings, *, new_positions: bool = False
) -> None:
    """Check that the weights are those of a model of these settings, but for new positions.

    Raises:
        ConfigError: they are not; names every setting that differs and the options to give.
    """
    theirs, ours = pretrained.model.model_dump(), model.model_dump()
    encoding = lookup(POSITION_ENCODINGS, model.positions, setting="model.positions")
    unread = EncodingSettings.model_fields.keys() - encoding.own_settings
    free = FREE | (OF_POSITIONS if new_positions else unread)
    different = [name for name in ours if name not in free and ours[name] != theirs[name]]
    if different:
        described = ", ".join(
            f"model.{name}={theirs[name]} there and {ours[name]} here" for name in different
        )
        options = " ".join(f"--model.{name} {theirs[name]}" for name in different)
        raise ConfigError(
            f"initial_weights={pretrained.place} is another model: {described}; give {options}"
        )


def check_before_build(settings: RunSettings) -> None:
    """Check, before the long build of rows, that they will fit the weights to start from.

    Raises:
        ConfigError: they will not.
        TokenizerError: the tokenizer that the settings name cannot be loaded.
    """
    if settings.initial_weights is None:
        return
    pretrained, place = weights_for(settings, settings.initial_weights), settings.data.tokenizer
    if place in get_args(TokenizerKind):
        raise ConfigError(
            f"a tokenizer data.tokenizer={place!r} would be trained, but initial_weights="
            f"{pretrained.place} have one already; give {_fix(pretrained, settings)}"
        )
    moses = settings.data.language if settings.data.moses else None
    text_encoder = text_encoder_of(load_tokenizer(place), special_names_beside(place), moses=moses)
    problem = _tokenizer_difference(pretrained.text_encoder, text_encoder)
    if problem is not None:
        raise ConfigError(
            f"data.tokenizer={place} differs from that of initial_weights={pretrained.place}: "
            f"{problem}; give {_fix(pretrained, settings)}"
        )


def check_tokenizer(pretrained: Pretrained, settings: RunSettings, shards: ShardSet) -> None:
    """Check that the rows of this run have the tokenizer of the weights.

    Raises:
        ConfigError: they have another; names the options that build rows that fit.
    """
    tokenizer = described_tokenizer(shards.tokenizer_path, shards.manifest.tokenizer)
    problem = _tokenizer_difference(
        pretrained.text_encoder, TextEncoder(tokenizer, shards.manifest.tokenizer)
    )
    if problem is not None:
        raise ConfigError(
            f"the shards in {shards.folder} have another tokenizer than initial_weights="
            f"{pretrained.place}: {problem}; fix: build shards with {_fix(pretrained, settings)}"
        )


def _fix(pretrained: Pretrained, settings: RunSettings) -> str:
    """Return the options that build rows with the tokenizer of the weights."""
    tokenizer = _tokenizer_place(Path(pretrained.place))
    if tokenizer is None:
        command = shell_command("import", pretrained.place, "--to", "FOLDER")
        return f"the recipe that {command} writes"
    options = ["--data.tokenizer", tokenizer]
    if (pretrained.text_encoder.record.moses is not None) != settings.data.moses:
        options += ["--data.moses", str(pretrained.text_encoder.record.moses is not None).lower()]
    if pretrained.text_encoder.record.moses not in (None, settings.data.language):
        options += ["--data.language", str(pretrained.text_encoder.record.moses)]
    if settings.data.shards is not None:
        options += ["--data.shards", "none"]
    return " ".join(options)


def _tokenizer_difference(theirs: TextEncoder, ours: TextEncoder) -> str | None:
    """Return how the tokenizer of the rows (ours) differs from that of the weights, or None."""
    before, now = (
        text_encoder.tokenizer.get_vocab(with_added_tokens=True) for text_encoder in (theirs, ours)
    )
    if before != now:
        token = min(token for token in before | now if before.get(token) != now.get(token))
        return (
            f"{sum(before.get(token) == number for token, number in now.items()):,} of "
            f"{len(now):,} entries have the same id; {token!r} is {now.get(token)} in the shards "
            f"and {before.get(token)} in the weights"
        )
    for role in NEEDED_TOKENS:
        if theirs.special[role] != ours.special[role]:
            return f"the {role} token is {ours.special[role]}, not {theirs.special[role]}"
    if theirs.record.moses != ours.record.moses:
        described = [
            f"by Moses (language {text_encoder.record.moses})"
            if text_encoder.record.moses
            else "without Moses"
            for text_encoder in (ours, theirs)
        ]
        return f"the shards are tokenized {described[0]}, the text of the weights {described[1]}"
    entries = sorted(filter(str.isalpha, now), key=now.__getitem__)[:ENTRIES_TRIED]
    for word in (*PROBE_TEXTS, *map(str.capitalize, entries)):
        rows, weights = (
            text_encoder.tokenizer.encode(word, add_special_tokens=False).tokens
            for text_encoder in (ours, theirs)
        )
        if rows != weights:
            return (
                f"{word!r} is {' '.join(rows)} in the shards and {' '.join(weights)} in the weights"
            )
    return None


def _tokenizer_place(place: Path) -> str | None:
    """Return a place for `data.tokenizer`; None for a .pt file that has a dictionary only."""
    is_file = place.suffix == ".pt"
    folder = place.parent if is_file else place
    if place.parent.name == CHECKPOINTS:
        folder = place.parent.parent
    if (folder / TOKENIZER_FILE).is_file():
        return str(folder / TOKENIZER_FILE)
    return None if is_file else str(place)
