"""The model card of a fine-tuned model: labels, scores, training."""

import json
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import ModelCardData
from torch import Tensor

from finetune.results.result import TrialResult
from finetune.tasks.catalog import suite_of
from finetune.tasks.task import Task
from pretrain.config.settings import ModelSettings
from pretrain.convert.exports.model_card import OTHER_LICENCE, encoder_rows, save_card
from pretrain.convert.hf_names import StockModel


def write_card(
    folder: Path,
    weights: Mapping[str, Tensor],
    task: Task,
    result: TrialResult,
    *,
    model: ModelSettings,
    stock: StockModel | None,
    sequence_length: int,
    moses: str | None,
) -> None:
    """Write README.md.

    Args:
        folder: of the model, until it is complete.
        weights: under our names.
        task: that it was trained on.
        result: of its trial.
        model: settings of the encoder.
        stock: the model of transformers that is the same; None: it has none.
        sequence_length: to which rows are cut.
        moses: language of Moses, where it comes before the tokenizer.
    """
    suite = suite_of(task.name)
    step = "" if result.step is None else f" step {result.step:,}"
    data = suite.hub if suite else task.file
    pair = '{"text": "The first text.", "text_pair": "The second text."}'
    save_card(
        folder,
        ModelCardData(
            library_name="transformers",
            pipeline_tag="text-classification",
            **OTHER_LICENCE,
            datasets=[suite.hub] if suite else None,  # identifiers of the Hub, no files
            tags=["fine-tuned", "tupelo"],
        ),
        place=Path(folder.stem),
        kind="text-classification",
        name=f"{result.model}{step} on {task.name}",
        tables={
            "Model": [
                ["encoder", result.model],
                *encoder_rows(model, weights),
                ["in transformers", stock.architecture if stock else "code of this folder"],
                ["predicts", _quoted(*(task.labels or (task.label,)))],
            ],
            "Scores, times 100": [
                [f"{task.title(split)}, {metric}", f"{100 * value:.1f}"]
                for split, metrics in result.scores.items()
                for metric, value in metrics.items()
            ],
            "Training": [
                *([["training data", data]] if data else []),
                ["task", task.name],
                ["text", _quoted(*task.texts)],
                ["protocol", result.protocol],
                ["learning rate", f"{result.learning_rate:g}"],
                ["epochs", result.epochs],
                ["seed", result.seed],
            ],
        },
        has_own_code=stock is None,
        example=pair if len(task.texts) == 2 else '"A text."',
        sequence_length=sequence_length,
        moses=moses,
    )


def _quoted(*names: str) -> str:
    return ", ".join(json.dumps(name, ensure_ascii=False) for name in names)
