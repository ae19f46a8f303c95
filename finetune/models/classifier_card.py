"""The model card of an exported fine-tuned model: labels, scores, training."""

import json
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from finetune.models.classifier_format import stock_classifier
from finetune.models.kept_model import KeptModel, KeptRecord
from finetune.tasks.catalog import suite_of
from finetune.tasks.task import split_title
from pretrain.convert.exports.in_transformers import ExportCheck
from pretrain.convert.exports.model_card import OTHER_LICENCE, Rows, encoder_rows, save_card

# Names of the Hub, where they differ from ours.
HUB_METRICS = {
    "macro_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}


def write_classifier_card(
    folder: Path, kept: KeptModel, check: ExportCheck, *, place: Path, licence: str | None = None
) -> None:
    """Write README.md.

    Args:
        folder: of the export.
        kept: what was exported.
        check: comparison of the export with the trainer.
        place: where the folder will be.
        licence: as the Hub calls it; None: the training data have theirs.
    """
    record, stock = kept.record, stock_classifier(kept.record)
    pair = '{"text": "The first text.", "text_pair": "The second text."}'
    unit = "logits" if record.labels else "numbers, in units of their standard deviation,"
    save_card(
        folder,
        _header(record, licence),
        place=place,
        kind="text-classification",
        name=record.describe(),
        tables={
            "Model": [
                ["encoder", record.name],
                *encoder_rows(record.model, kept.weights),
                ["in transformers", stock.architecture if stock else "code of this folder"],
                ["predicts", ", ".join(map(_quoted, record.labels or (record.label,)))],
            ],
            "Scores, times 100": [
                [f"{title}, {metric}", f"{100 * value:.1f}"]
                for title, _, metric, value in _scores(record)
            ],
            "Training": [*_training_rows(record), check.row(unit)],
        },
        has_own_code=stock is None,
        example=pair if len(record.texts) == 2 else '"A text."',
        sequence_length=record.sequence_length,
        moses=record.tokenizer.moses,
    )


def _header(record: KeptRecord, licence: str | None) -> ModelCardData:
    """Return the entries that the Hub reads."""
    suite = suite_of(record.task)
    return ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        **({"license": licence} if licence else OTHER_LICENCE),
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


def _scores(record: KeptRecord) -> Iterator[tuple[str, str, str, float]]:
    """Yield title and name of each development set, metric and value."""
    suite = suite_of(record.task)
    for split, metrics in record.scores.items():
        title = suite.tasks[record.task].title(split) if suite else split_title(record.task, split)
        for metric, value in metrics.items():
            yield title, split, metric, value


def _training_rows(record: KeptRecord) -> Rows:
    suite = suite_of(record.task)
    data = suite.hub if suite else record.file
    return [
        *([["training data", data]] if data else []),
        ["task", record.task],
        ["text", ", ".join(map(_quoted, record.texts))],
        ["protocol", record.protocol],
        ["learning rate", f"{record.learning_rate:g}"],
        ["epochs", record.epochs],
        ["seed", record.seed],
        ["dropout", f"{record.model.dropout:g}, attention {record.model.attention_dropout:g}"],
    ]


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
