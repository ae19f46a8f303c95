"""Model cards, README.md: one template for exports of pre-training and of fine-tuning.

The Hub renders them: names and values are code, so that they are shown as they are written. Folders
of the machine are left out of paths.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCard, ModelCardData
from tabulate import tabulate
from torch import Tensor

from data_prep.files.atomic import save_text
from data_prep.shards.manifest import LANGUAGE, Manifest, read_manifest
from pretrain.config.recipe import load_settings
from pretrain.config.recipe_files import OF_ENCODERS
from pretrain.config.run_files import EvaluationLine, Launch, Metrics, read_checked_lines
from pretrain.config.settings import REPLACED_TOKEN_DETECTION, ModelSettings
from pretrain.convert.model import Pretrained, without_generator
from pretrain.convert.stock_models import stock_architecture
from pretrain.data.shards import with_text_of
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.reports.words import amount

if TYPE_CHECKING:  # it imports transformers, which takes seconds
    from pretrain.convert.exports.in_transformers import ExportCheck

CARD_FILE = "README.md"
OTHER_LICENCE: dict[str, Any] = {"license": "other", "license_name": "that-of-the-training-data"}

# An absolute path up to its last part, of which a home may be the only folder; not the address of a
# page, nor a ratio such as ~a/b.
_PART = r"(?:[^\s/:\"'|,;<>()]+/)"
_FOLDERS = re.compile(
    rf"(?<![\w./~])~[A-Za-z_][\w.-]+/{_PART}*|(?<![\w./~])(?!//)(?:~|\.\.)?/{_PART}+"
)

Rows = Sequence[Sequence[Any]]


def write_card(
    folder: Path, pretrained: Pretrained, run: Path, check: "ExportCheck", *, place: Path
) -> None:
    """Write README.md of an export of pre-training, whose folder will be at `place`."""
    manifest = read_manifest(run)
    settings = with_text_of(load_settings(run), manifest)
    language = str(manifest.settings.get("language"))
    is_discriminator = pretrained.objective == REPLACED_TOKEN_DETECTION
    stock = stock_architecture(pretrained.model, pretrained.objective)
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=None if is_discriminator else "fill-mask",
        tags=["electra" if is_discriminator else "masked-language-model", "pre-training", "tupelo"],
        language=language if LANGUAGE.fullmatch(language) else None,
        **OTHER_LICENCE,  # the table says which
    )
    content = settings.model_dump(mode="json")
    for section, names in OF_ENCODERS.items() if pretrained.model.transformers else ():
        content[section] = {n: value for n, value in content[section].items() if n not in names}
    began = settings.initial_weights or settings.model.folder
    network = "the discriminator of an ELECTRA" if is_discriminator else pretrained.objective
    save_card(
        folder,
        data,
        place=place,
        kind="discriminator" if is_discriminator else "fill-mask",
        name=settings.name,
        tables={
            "Model": [
                ["pre-trained as", network],
                *([["began with the weights of", without_folders(began)]] if began else []),
                *encoder_rows(pretrained.model, without_generator(pretrained.weights)),
                ["in transformers", stock or "code of this folder"],
            ],
            "Training data": _data_rows(manifest),
            "Training": [
                *_training_rows(pretrained, run),
                [
                    "largest difference to the trainer",
                    f"{check.largest_difference:.1g} in {check.num_logits:,} logits, fp32",
                ],
            ],
        },
        has_own_code=stock is None,
        sequence_length=pretrained.sequence_length,
        moses=manifest.tokenizer.moses,
        settings=without_folders(json.dumps(content, indent=1)),
    )


def save_card(
    folder: Path,
    data: ModelCardData,
    *,
    place: Path,
    kind: str,
    name: str,
    tables: Mapping[str, Rows],
    has_own_code: bool,
    **fields: Any,
) -> None:
    """Write README.md.

    `place` is that of the folder in the examples, of an absolute path the name; `kind` is
    "discriminator", or the name of a pipeline on the Hub. `has_own_code`: transformers has no class
    for it. `fields` are further ones of the template.
    """
    card = ModelCard.from_template(
        data,
        template_path=str(Path(__file__).with_name("model_card.md.j2")),
        place=repr(place.name if place.is_absolute() else str(place)),
        kind=kind,
        name=plain_text(name),
        trust=", trust_remote_code=True" if has_own_code else "",
        tables={title: card_table(rows) for title, rows in tables.items()},
        **fields,
    )
    save_text(folder / CARD_FILE, card.content + "\n")


def encoder_rows(model: ModelSettings, weights: Mapping[str, Tensor]) -> Rows:
    """Return what describes the network."""
    if isinstance(model.transformers, dict):
        kind = [["type", model.transformers["model_type"]], ["layers", model.num_layers]]
    else:
        positions = POSITION_ENCODINGS[model.positions]
        kind = [
            ["positions", f"{positions.description}; {positions.source}"],
            ["layers", f"{model.num_layers}, {model.norm}-norm"],
        ]
    return [
        *kind,
        ["width", f"{model.width}, {model.num_heads} heads"],
        ["parameters", f"{sum(weight.numel() for weight in weights.values()):,}"],
    ]


def _data_rows(manifest: Manifest) -> Rows:
    rows: list[list[Any]] = [["source", manifest.source], ["licence", manifest.licence]]
    for name, split in manifest.splits.items():
        known = [("documents", split.documents), ("words", split.words), ("tokens", split.tokens)]
        counts = [f"{count:,} {what}" for what, count in known if count is not None]
        rows.append([name, ", ".join([*counts, f"{split.rows:,} sequences"])])
    tokenizer = manifest.tokenizer
    rows.append(["tokenizer", f"{tokenizer.kind}, {tokenizer.vocabulary_size:,} entries"])
    rows += [[f"cleaning: {what}", f"{count:,}"] for what, count in manifest.cleaning.items()]
    return rows + [["afterwards", step] for step in manifest.history]


def _training_rows(pretrained: Pretrained, run: Path) -> Rows:
    """Return amounts, the first and last held-out loss until the exported step, and the device."""

    def until(file: str, line: Any) -> list[dict[str, Any]]:
        rows = read_checked_lines(run / file, line)
        return [row for row in rows if row.get("step", 0) <= (pretrained.step or 0)]

    rows: list[list[Any]] = [["steps", f"{pretrained.step:,}"]]
    for last in until("metrics.jsonl", Metrics)[-1:]:
        names = {"tokens": "tokens", "training_seconds": "time", "flops": "FLOPs"}
        rows += [[name, amount(last[axis], axis)] for axis, name in names.items()]
    losses = until("evals.jsonl", EvaluationLine)
    for one in losses[:1] + losses[1:][-1:]:
        rows.append(["held-out loss", f"{one['loss']:.3f} nats, at step {one['step']:,}"])
    for launch in until("launches.jsonl", Launch)[-1:]:
        versions = ", ".join(f"{name} {number}" for name, number in launch["versions"].items())
        rows.append(["device", f"{launch['device']}, ranks: {launch['world_size']}"])
        rows += [["commit of Tupelo", launch["commit"]], ["versions", versions]]
    return rows


def card_table(rows: Rows) -> str:
    """Return a table of Markdown."""
    cells = [[name, plain_text(value)] for name, value in rows]
    return tabulate(cells, headers=["", ""], tablefmt="github", disable_numparse=True)


def without_folders(text: str) -> str:
    """Return the text with absolute paths cut to their last part."""
    return _FOLDERS.sub("", text)


def plain_text(value: Any) -> str:
    """Return a name or a sentence on one line, without folders, as code: Markdown reads no more."""
    line = " ".join(without_folders(str(value)).split())
    return f"`{line.replace('`', chr(39)).replace('|', '/')}`"
