"""Conversion of a model of another program into the form of our exports."""

import functools
import json
from pathlib import Path

from transformers import BertForMaskedLM

from data_prep.files.atomic import save_text
from data_prep.files.program import shell_command
from data_prep.shards.folders import complete_or_absent, refuse_existing
from data_prep.shards.manifest import TOKENIZER_FILE
from pretrain.checkpoint.folders import checkpoints_of
from pretrain.config.errors import ConfigError
from pretrain.config.settings import DEFAULT_OBJECTIVE, RunSettings
from pretrain.convert.exports.hf_format import is_export, write_pretrained
from pretrain.convert.exports.in_transformers import compare_logits, quiet
from pretrain.convert.external.transformers_folder import transformers_folder
from pretrain.convert.model import Pretrained
from pretrain.convert.pretrained import load_pretrained
from pretrain.convert.stock_models import stock_model

RECIPE_FILE = "recipe.toml"


def import_model(place: str, target: Path) -> None:
    """Read the model, check it, write it, and print what to do next.

    Args:
        place: a BERT of transformers, its name on the Hub, or a .pt file of the TUPE authors' code.
        target: the new folder.

    Raises:
        UserError: there is no such model, or it computes something else than its program.
    """
    folder = Path(place).absolute()
    is_run = (folder / "run.json").is_file() or folder in checkpoints_of(folder.parent.parent)
    if is_run or is_export(folder):
        raise ConfigError(
            f"{place} is already a model of this program; start from it with --initial_weights "
            f"{place}"
        )
    refuse_existing(target)  # here too: a download takes a while
    pretrained = load_pretrained(place)
    if pretrained.model.transformers is not None or pretrained.objective != DEFAULT_OBJECTIVE:
        raise ConfigError(
            f"{place} is no BERT with its head for masked words, and only that becomes a model of "
            f"ours; fine-tune it ({shell_command('finetune', 'run', place)}), or train it as it "
            f"is: --model.folder {place}"
        )
    lines = [f"imported {pretrained.name} to {target}"]
    if stock_model(pretrained.model, pretrained.objective) is not None:
        with quiet():
            # Its config.json could name kernels of the Hub, which are code.
            theirs = BertForMaskedLM.from_pretrained(
                transformers_folder(place), attn_implementation="eager"
            )
        check = compare_logits(theirs, pretrained, fix=f"{place} is another model than it says")
        difference = f"{check.largest_difference:.2g} in {check.num_logits:,} logits"
        lines.append(f"largest difference to transformers: {difference}")
    with complete_or_absent(target) as partial:
        write_pretrained(partial, pretrained)
        save_text(partial / RECIPE_FILE, recipe_from(pretrained, target.absolute()))
    again = ("train", target / RECIPE_FILE, "--corpus", "YOUR_TEXT", "--steps", "10000")
    print("\n".join([*lines, "Train it further:", f"  {shell_command(*again)}"]))


# TOML writes strings, numbers and truth values as JSON does, but for its pairs of surrogates.
_toml = functools.partial(json.dumps, ensure_ascii=False)


def recipe_from(pretrained: Pretrained, folder: Path) -> str:
    """Return a recipe that trains the model in `folder` further, as TOML."""
    default = RunSettings().data.sequence_length
    data = {
        "corpus": [],
        "tokenizer": str(folder / TOKENIZER_FILE),
        "sequence_length": min(default, pretrained.sequence_length),
    }
    if pretrained.text_encoder.record.moses is not None:
        data |= {"moses": True, "language": pretrained.text_encoder.record.moses}
    model = pretrained.model.model_dump(exclude_none=True)
    lines = [
        "# Trains an imported model further. Steps, batch and learning rate are the defaults.",
        f"name = {_toml(pretrained.name)}",
        f"initial_weights = {_toml(str(folder))}",
    ]
    for title, values in {"data": data, "model": model}.items():
        lines += [f"[{title}]", *(f"{name} = {_toml(value)}" for name, value in values.items())]
    return "\n".join(lines) + "\n"
