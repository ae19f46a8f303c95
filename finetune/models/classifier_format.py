"""A fine-tuned model as the files of an `AutoModelForSequenceClassification`.

Only `positions = "bert-a"` with `norm = "post"` is a stock model, `BertForSequenceClassification`:
its pooler is our dense layer, its classifier our output. Others carry code of their own, as the
exports of pre-training do. The head predicts numbers in the units of the labels: mean and spread of
a regression are part of its weights.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data_prep.files.atomic import save_text
from finetune.models.kept_model import KeptModel, KeptRecord
from finetune.training.model import HEAD
from finetune.training.targets import Values
from pretrain.config.settings import DEFAULT_OBJECTIVE
from pretrain.convert.exports.hf_format import (
    CONFIG_FILE,
    RECORD,
    ExportRecord,
    configuration,
    save_weights,
    stock_model,
    write_code,
)
from pretrain.convert.exports.hf_writer import write_tokenizer
from pretrain.convert.hf_names import BERT, StockModel, to_stock
from pretrain.convert.stored_weights import WEIGHTS_FILE

FINE_TUNED = "tupelo_fine_tuned"  # entry of config.json: what was exported
AUTO_CLASS, OWN_CLASS = "AutoModelForSequenceClassification", "TupeloForSequenceClassification"
CLASSIFIER = BERT._replace(
    architecture="BertForSequenceClassification",
    head_layers={"classifier.dense": "bert.pooler.dense", "classifier.output": "classifier"},
    head_weights={},
)


def stock_classifier(record: KeptRecord) -> StockModel | None:
    """Return the model of transformers that is the same; None: it has none.

    An ELECTRA is one too: its encoder is BERT's, its own class has another head.
    """
    return CLASSIFIER if stock_model(record.model, DEFAULT_OBJECTIVE) else None


def write_classifier(folder: Path, kept: KeptModel) -> None:
    """Write the configuration, the weights, the tokenizer, and code if transformers has none."""
    record, stock = kept.record, stock_classifier(kept.record)
    save_text(folder / CONFIG_FILE, json.dumps(classifier_configuration(record), indent=2) + "\n")
    weights = in_units_of_labels(kept)
    if stock is not None:
        weights = to_stock(weights, stock, record.model.num_layers)
        weights[stock.token_types] = torch.zeros(2, record.model.width)
    else:
        write_code(folder)
    save_weights(folder / WEIGHTS_FILE, weights)
    write_tokenizer(
        folder,
        kept.text_encoder,
        sequence_length=record.sequence_length,
        with_token_types=stock is not None,
    )


def classifier_configuration(record: KeptRecord) -> dict[str, Any]:
    """Return the content of config.json."""
    export = ExportRecord(
        name=record.name,
        step=record.step,
        sequence_length=record.sequence_length,
        tokenizer=record.tokenizer,
        vocabulary=record.vocabulary,
    )
    content, stock = configuration(record.model, export), stock_classifier(record)
    del content[RECORD]  # it marks what can be pre-trained further
    names = record.labels or (record.label,)
    return {
        **content,
        "architectures": [stock.architecture if stock else OWN_CLASS],
        "problem_type": "single_label_classification" if record.labels else "regression",
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        FINE_TUNED: record.model_dump(mode="json", exclude={"model"}),
    }


def in_units_of_labels(kept: KeptModel) -> dict[str, Tensor]:
    """Return the weights of a model whose logits are the numbers that it predicts."""
    target, weights = kept.record.target, dict(kept.weights)
    if isinstance(target, Values):
        weight, bias = f"{HEAD}output.weight", f"{HEAD}output.bias"
        weights[weight] = weights[weight] * target.spread
        weights[bias] = weights[bias] * target.spread + target.centre
    return weights
