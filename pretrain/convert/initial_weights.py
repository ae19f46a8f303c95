"""Initialise a run from existing weights (`initial_weights`), or refuse those that do not fit.

Only step 0 does: a resumed run has its checkpoint. The optimizer and the schedules start anew.
"""

import itertools
from pathlib import Path
from typing import Any, get_args

import torch

from data_prep.files.program import shell_command
from data_prep.shards.format import ShardSet
from data_prep.shards.manifest import TokenizerKind
from data_prep.text.text_encoder import MASK, PROBE_TEXTS, TextEncoder, text_encoder_at
from data_prep.tokenizer.describe import read_tokenizer
from pretrain.checkpoint.folders import CHECKPOINTS
from pretrain.config.errors import ConfigError, lookup
from pretrain.config.settings import REPLACED_TOKEN_DETECTION, EncodingSettings, RunSettings
from pretrain.config.settings.transformers_config import FIELDS, SPECIAL_IDS, trusts_code
from pretrain.convert.external.transformers_folder import read_transformers_model
from pretrain.convert.model import ENCODER_ALONE
from pretrain.convert.pretrained import Pretrained, load_pretrained
from pretrain.data.frequencies import word_frequencies
from pretrain.data.shards import open_data
from pretrain.model.objectives.objective import Objective
from pretrain.model.objectives.replaced_tokens import generator_settings
from pretrain.model.positions import POSITION_ENCODINGS

# Settings that change neither the meaning of a weight nor the shapes.
FREE = {
    *("dropout", "attention_dropout"),
    *("initializer_range", "branch_initialisation", "output_bias"),
    "folder",
}
# Those of the positions alone, which may be new.
OF_POSITIONS = {"positions", "max_sequence_length", *EncodingSettings.model_fields}
POSITIONS = ".positions."  # in the name of every weight that belongs to an encoding
# Entries of a configuration that are settings of their own, or of a tokenizer.
ELSEWHERE = {*SPECIAL_IDS, *itertools.chain(*FIELDS.values())}
ENTRIES_TRIED = 1000  # capitalised, in any script


def load_initial_weights(
    model: Objective, settings: RunSettings, shards: ShardSet | None = None
) -> dict[str, Any] | None:
    """Give a new model the weights that the settings name, or else its output bias.

    Args:
        model: whole, on the host: call this before the engine takes it, on the first rank.
        settings: of the run.
        shards: that it reads; None: those of the settings, of which weights ask nothing.

    Returns:
        Where they come from, for launches.jsonl; None where the settings name none.

    Raises:
        ConfigError: see `fitting_weights`, as for the other errors.
    """
    pretrained = fitting_weights(settings, shards)
    if pretrained is None:
        if settings.model.output_bias == "frequencies":
            read = open_data(settings) if shards is None else shards
            frequencies = word_frequencies(read, settings.model.vocabulary_size)
            model.set_output_bias(torch.from_numpy(frequencies).log())
        return None
    weights = dict(pretrained.weights)
    if settings.initial_positions == "new":
        weights = {name: value for name, value in weights.items() if POSITIONS not in name}
        own = model.state_dict().items()
        weights |= {name: value for name, value in own if POSITIONS in name}
    model.load_state_dict(weights, strict=False)  # they were compared; tied ones have one name
    return {"place": pretrained.place, "name": pretrained.name, "step": pretrained.step}


def fitting_weights(settings: RunSettings, shards: ShardSet | None = None) -> Pretrained | None:
    """Return the weights that the settings name; None where they name none.

    Args:
        settings: of the run.
        shards: whose tokenizer must be that of the weights; None: it is not compared.

    Raises:
        ConfigError: there are none, or they are those of another objective, model or tokenizer.
        ShardError: the manifest or the tokenizer of the run that is named is damaged.
        TokenizerError: the tokenizer of an external model cannot be used.
    """
    initial, folder = settings.initial_weights, settings.model.folder
    if initial is not None:
        pretrained = load_pretrained(initial)
    elif folder is None:
        return None
    else:
        trusts = trusts_code(settings.model.transformers)
        pretrained = read_transformers_model(folder, as_it_is=True, trust_remote_code=trusts)
    if pretrained.objective == ENCODER_ALONE:
        raise ConfigError(
            f"{pretrained.place} has no head for masked words, which pre-training needs; fine-tune "
            "it, or give a model for masked words"
        )
    if initial is not None:
        _check_model(pretrained, settings)
    if shards is not None:
        tokenizer = read_tokenizer(shards.tokenizer_path)
        ours = TextEncoder(tokenizer, shards.manifest.tokenizer)
        _check_tokenizer(pretrained, ours, f"the shards in {shards.folder}")
    return pretrained


def check_before_build(settings: RunSettings) -> None:
    """Check, before the long build of rows, that they will fit the weights to start from.

    Raises:
        ConfigError: they will not.
        TokenizerError: the tokenizer that the settings name cannot be loaded.
    """
    pretrained, place = fitting_weights(settings), settings.data.tokenizer
    if pretrained is None:
        return
    if place in get_args(TokenizerKind):
        raise ConfigError(
            f"a tokenizer data.tokenizer={place!r} would be trained, but the weights of "
            f"{pretrained.place} have one already; give {_fix(pretrained)}"
        )
    moses = settings.data.rules_language if settings.data.moses else None
    _check_tokenizer(pretrained, text_encoder_at(place, moses=moses), f"data.tokenizer={place}")


def _check_model(pretrained: Pretrained, settings: RunSettings) -> None:
    """Check that the weights are those of the model of these settings, but for new positions."""
    there = f"initial_weights={pretrained.place}"
    if pretrained.objective != settings.objective:
        raise ConfigError(
            f"{there} were trained with objective={pretrained.objective}, and this run has "
            f"objective={settings.objective}; name weights of this objective"
        )
    if pretrained.model.transformers is not None and settings.model.transformers is None:
        raise ConfigError(
            f"{there} is no model of ours but one of transformers, which is trained as it is: "
            f"{shell_command('export', pretrained.place, '--to', 'FOLDER')}, then --model.folder "
            "FOLDER, with a recipe such as adapt"
        )
    unread = set(EncodingSettings.model_fields)
    if settings.model.transformers is None:
        encoding = lookup(POSITION_ENCODINGS, settings.model.positions, setting="model.positions")
        unread -= set(encoding.own_settings)
    free = FREE | (OF_POSITIONS if settings.initial_positions == "new" else unread)
    theirs, ours = pretrained.model.model_dump(), settings.model.model_dump()
    for model in (theirs, ours):
        config = model["transformers"] or {}
        model["transformers"] = {name: config[name] for name in config if name not in ELSEWHERE}
    different = {
        f"model.{name}": (theirs[name], ours[name])
        for name in ours
        if name not in free and ours[name] != theirs[name]
    }
    if settings.objective == REPLACED_TOKEN_DETECTION:
        if pretrained.electra is None:
            raise ConfigError(
                f"{there} are the discriminator alone, and training needs the generator too; give "
                "the run or the checkpoint that it was exported from"
            )
        generators = pretrained.electra, settings.electra
        widths = {generator_settings(settings.model, each).width for each in generators}
        if len(widths) > 1:  # shares of a small width round to the same
            before, now = (each.generator_width for each in generators)
            different["electra.generator_width"] = (before, now)
    if different:
        described = ", ".join(
            f"{name}={theirs} there and {ours} here" for name, (theirs, ours) in different.items()
        )
        options = " ".join(f"--{name} {theirs}" for name, (theirs, _) in different.items())
        raise ConfigError(f"{there} is another model: {described}; give {options}")


def _check_tokenizer(pretrained: Pretrained, ours: TextEncoder, place: str) -> None:
    """Check that a tokenizer of rows, at a place, is that of the weights."""
    theirs, entries = pretrained.text_encoder, ours.tokenizer.get_vocab(with_added_tokens=True)
    words = sorted(filter(str.isalpha, entries), key=entries.__getitem__)[:ENTRIES_TRIED]
    is_same = (
        ours.fingerprint() == theirs.fingerprint()
        and ours.record.moses == theirs.record.moses
        and all(
            ours.ids(word) == theirs.ids(word)
            for word in (MASK, *PROBE_TEXTS, *map(str.capitalize, words))
        )
    )
    if not is_same:
        raise ConfigError(
            f"{place}: another tokenizer than that of the weights of {pretrained.place}, or text "
            f"prepared otherwise (lower case, Moses); give {_fix(pretrained)}"
        )


def _fix(pretrained: Pretrained) -> str:
    """Return the options that build rows with the tokenizer of the weights."""
    place, language = Path(pretrained.place), pretrained.text_encoder.record.moses
    if place.suffix == ".pt":  # its tokenizer may be a dictionary
        command = shell_command("import", pretrained.place, "--to", "FOLDER")
        return f"the recipe that {command} writes"
    if place.parent.name == CHECKPOINTS:
        place = place.parent.parent
    moses = "false" if language is None else f"true --data.language {language}"
    return f"--data.tokenizer {place} --data.moses {moses}, and no data.shards"
