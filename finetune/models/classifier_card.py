"""The model card of an exported fine-tuned model: use, labels, scores, training."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from data_prep.files.atomic import save_text
from finetune.models.classifier_format import stock_classifier
from finetune.models.kept_model import KeptModel, KeptRecord
from finetune.tasks.catalog import suite_of
from finetune.tasks.task import split_title
from pretrain.convert.exports.card_header import OTHER_LICENCE
from pretrain.convert.exports.card_text import card_table, plain_text, render_card
from pretrain.convert.exports.hf_check import ExportCheck
from pretrain.convert.exports.model_card import CARD_FILE
from pretrain.model.positions import POSITION_ENCODINGS

# Names of the Hub, where they differ from ours.
HUB_METRICS = {
    "macro_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}


def write_classifier_card(
    folder: Path, kept: KeptModel, check: ExportCheck, *, place: str, licence: str | None = None
) -> None:
    """Write README.md.

    Args:
        folder: of the export.
        kept: what was exported.
        check: comparison of the export with the trainer.
        place: of the folder in the examples.
        licence: as the Hub calls it; None: the training data have theirs.
    """
    record, stock = kept.record, stock_classifier(kept.record)
    scores = [[title, metric, f"{100 * value:.1f}"] for title, _, metric, value in _scores(record)]
    text = render_card(
        Path(__file__).with_name("classifier_card.md.j2"),
        header=_header(record, licence).to_yaml(),
        name=record.describe(),
        summary=_summary(kept),
        place=place,
        trust="" if stock else ", trust_remote_code=True",
        is_pair=len(record.texts) == 2,
        labels=record.labels,
        number=record.label,
        texts=record.texts,
        sequence_length=record.sequence_length,
        moses=record.tokenizer.moses,
        scores=card_table(scores, ["development set", "metric", "score"]),
        training=card_table(_training_rows(record, check), ["", ""]),
    )
    save_text(folder / CARD_FILE, text)


def _header(record: KeptRecord, licence: str | None) -> ModelCardData:
    """Return the entries that the Hub reads."""
    suite = suite_of(record.task)
    return ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        license=licence or "other",
        license_name=None if licence else OTHER_LICENCE,
        datasets=[suite.hub] if suite else None,  # identifiers of the Hub, no files
        tags=["fine-tuned", "tupelo"],
        model_name=record.describe(),
        eval_results=[
            EvalResult(
                task_type="text-classification",
                dataset_name=title,
                dataset_type=suite.hub if suite else record.task,
                dataset_config=suite.tasks[record.task].hub if suite else None,
                dataset_split=split,
                metric_type=HUB_METRICS.get(metric, metric),
                metric_name=metric,
                metric_value=value,
            )
            for title, split, metric, value in _scores(record)
        ],
    )


def _data_set(record: KeptRecord) -> str:
    """Return the data set of the Hub, or the name of the user's own file; empty: unknown."""
    suite = suite_of(record.task)
    return suite.hub if suite else record.file


def _scores(record: KeptRecord) -> Iterator[tuple[str, str, str, float]]:
    """Yield title and name of each development set, metric and value."""
    suite = suite_of(record.task)
    for split, metrics in record.scores.items():
        title = suite.tasks[record.task].title(split) if suite else split_title(record.task, split)
        for metric, value in metrics.items():
            yield title, split, metric, value


def _summary(kept: KeptModel) -> str:
    record, stock = kept.record, stock_classifier(kept.record)
    parameters = sum(weight.numel() for weight in kept.weights.values())
    predicts = f"one of {len(record.labels)} classes" if record.labels else "a number"
    what = "a pair of texts" if len(record.texts) == 2 else "a text"
    kind = f"the stock `{stock.architecture}`" if stock else "a model with its own code"
    return (
        f"{plain_text(record.name)}, an encoder of {record.model.num_layers} layers, width "
        f"{record.model.width}, with {POSITION_ENCODINGS[record.model.positions].description}, "
        f"fine-tuned by Tupelo on {plain_text(record.task)}: of {what} it predicts {predicts}. It "
        f"has {parameters:,} parameters. For transformers it is {kind}."
    )


def _training_rows(record: KeptRecord, check: ExportCheck) -> list[list[Any]]:
    unit = "logits" if record.labels else "numbers, in units of their standard deviation,"
    return [
        *([["training data", data]] if (data := _data_set(record)) else []),
        ["protocol", record.protocol],
        ["learning rate", f"{record.learning_rate:g}"],
        ["epochs", record.epochs],
        ["seed", record.seed],
        [
            "dropout",
            f"{record.model.dropout:g}, attention {record.model.attention_dropout:g}",
        ],
        ["sequence length", f"at most {record.sequence_length}"],
        [
            "compared with the trainer",
            f"largest difference {check.largest_difference:.1g} in {check.num_logits} {unit} of "
            f"{check.source}, fp32",
        ],
    ]
