"""A fine-tuned model on the disk, the folder `model` of a trial, and in use on new texts.

It is what transformers' `AutoModelForSequenceClassification` loads, or of words
`AutoModelForTokenClassification`, of answers `AutoModelForQuestionAnswering`. With
`positions = "bert-a"` and `norm = "post"` it is such a BERT, whose pooler is our dense layer; a
model of transformers is the one of its family; others carry their code, as exports do.

config.json         its entry "tupelo_fine_tuned" is a `KeptRecord`
model.safetensors   of a regression in the units of the labels: its last layer scales and shifts
README.md           the model card
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from pydantic import TypeAdapter
from scipy.special import expit, softmax
from torch import Tensor

from data_prep.files.atomic import put_in_place
from data_prep.text.text_encoder import TextEncoder
from finetune.models.card import write_card
from finetune.models.kept_record import KeptConfiguration, KeptRecord
from finetune.results.model_folder import MODEL_FOLDER, PARTIAL
from finetune.results.result import TrialResult, read_json
from finetune.tasks.task import Example
from finetune.training.batches import POOL_BATCHES
from finetune.training.encoding import EncodedTask, encode_split
from finetune.training.model import (
    ENCODER,
    EVALUATION_BATCH,
    WHOLE,
    AnyTaskModel,
    TransformersTaskModel,
    attention_on,
    logits_of_rows,
    task_model,
)
from pretrain.convert.exports.hf_format import CONFIG_FILE, read_folder, write_folder
from pretrain.convert.external.transformers_folder import read_transformers_model
from pretrain.convert.pretrained import Pretrained
from pretrain.convert.weights import WEIGHTS_FILE, check_weights
from pretrain.model.shapes import shapes_only

REPEAT = "fine-tune again, or restore the folder from a copy"
# Texts that are sorted by length, cut into batches and written together.
CHUNK = POOL_BATCHES * EVALUATION_BATCH
DIGITS = 7  # those of fp32


class KeptModel(NamedTuple):
    """A fine-tuned model that was read."""

    record: KeptRecord
    weights: dict[str, Tensor]  # state dict of its task model, fp32, on the CPU
    text_encoder: TextEncoder


def save_model(
    trial: Path, model: AnyTaskModel, data: EncodedTask, pretrained: Pretrained, result: TrialResult
) -> None:
    """Write the folder of a model into that of its trial, complete or not at all."""
    folder = trial / MODEL_FOLDER
    partial = folder.with_suffix(PARTIAL)
    partial.mkdir()
    task, encoder, kept = data.task, pretrained.text_encoder, vars(data.target)
    record = KeptRecord(
        name=result.model,
        step=result.step,
        sequence_length=data.train.rows.longest,
        tokenizer=encoder.record,
        vocabulary=encoder.fingerprint(),
        task=task.name,
        texts=task.texts,
        label=task.label,
        labels=task.labels,
        kind=task.kind,
        **{name: kept[name] for name in ("centre", "spread", "may_be_none") if name in kept},
        pretrained_length=pretrained.sequence_length,
        model=model.settings,
    )
    weights = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    write_card(partial, record, weights, data, result)
    weight, bias = (f"{model.output_name}.{part}" for part in ("weight", "bias"))
    weights[weight] = weights[weight] * record.spread
    weights[bias] = weights[bias] * record.spread + record.centre
    write_folder(
        partial,
        record.configuration(),
        {name.removeprefix(WHOLE): tensor for name, tensor in weights.items()},
        record.stock,
        encoder,
        sequence_length=record.sequence_length,
    )
    put_in_place(partial, folder)


def read_model(folder: Path) -> KeptModel:
    """Read a fine-tuned model, also one that transformers has trained further or saved again.

    Raises:
        ConfigError: a file is missing or damaged, or the files do not belong together.
        TokenizerError: the tokenizer is missing or damaged.
    """
    kept = TypeAdapter(KeptConfiguration)
    found = read_json(folder / CONFIG_FILE, kept, REPEAT)
    record, names = found.tupelo_fine_tuned, found.id2label
    if record.labels and names:
        labels = tuple(names[str(number)] for number in range(len(names)))
        record = record.model_copy(update={"labels": labels})
    layers = record.model.num_layers
    weights, text_encoder = read_folder(folder, record, record.stock, layers, fix=REPEAT)
    with shapes_only():
        model = task_model(record.model, record.target)
    if isinstance(model, TransformersTaskModel):
        named = {f"{WHOLE}{name}": tensor for name, tensor in weights.items()}
        weights = {n: w for n, w in named.items() if n not in dict(model.named_buffers())}
    check_weights(weights, lambda: model, place=str(folder / WEIGHTS_FILE))
    record = record.model_copy(update={"centre": 0.0, "spread": 1.0})  # in units of the labels
    return KeptModel(record, weights, text_encoder)


def as_pretrained(folder: Path) -> Pretrained:
    """Return a fine-tuned model as the start of another task: its encoder, without the head."""
    record, weights, text_encoder = read_model(folder)
    if record.model.transformers is not None:
        weights = read_transformers_model(str(folder), as_it_is=True).weights
    step = "" if record.step is None else f" step {record.step}"
    return Pretrained(
        model=record.model,
        weights={name: tensor for name, tensor in weights.items() if name.startswith(ENCODER)},
        text_encoder=text_encoder,
        name=f"{record.name}{step} after {record.task}",
        place=str(folder.absolute()),
        step=None,  # of pre-training: it has had more than that
        sequence_length=record.pretrained_length,
    )


class Predictor:
    """A fine-tuned model on a device, in fp32 on every machine.

    A text is a tuple of one, of a pair, of the words of a sentence, or of a question and its text.
    """

    def __init__(self, kept: KeptModel, device: torch.device) -> None:
        self.record, self._text_encoder = kept.record, kept.text_encoder
        self.num_cut = 0  # texts, so far, that fill the longest row
        settings = kept.record.model
        self._model = task_model(
            settings, kept.record.target, attention=attention_on(device, settings)
        ).to(device)
        self._model.load_state_dict(kept.weights, strict=False)  # some of transformers have buffers

    @property
    def columns(self) -> list[str]:
        """Return `prediction`, and of the labels of texts the `probability_LABEL` of each."""
        labels = () if self.record.target.is_of_tokens else self.record.labels
        return ["prediction", *(f"probability_{label}" for label in labels)]

    def predictions(self, texts: Sequence[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
        """Yield the `columns` of each text; labels are joined by semicolons, tags by spaces."""
        record, several = self.record, self.record.kind == "multi-label"
        for start in range(0, len(texts), CHUNK):
            outputs = self.outputs(texts[start : start + CHUNK])
            if record.target.is_of_tokens:
                for value in outputs:
                    tags = (record.labels[each] for each in value) if record.labels else ()
                    yield {"prediction": " ".join(tags) if record.labels else value}
            elif record.labels:
                for row in expit(outputs) if several else softmax(outputs, axis=1):
                    shares = dict(zip(record.labels, row.tolist(), strict=True))
                    chosen = [label for label, share in shares.items() if share > 0.5]
                    best = ";".join(chosen) if several else max(shares, key=shares.__getitem__)
                    rounded = (float(f"{share:.{DIGITS}g}") for share in shares.values())
                    yield dict(zip(self.columns, [best, *rounded], strict=True))
            else:
                yield from ({"prediction": float(f"{value:.{DIGITS}g}")} for value in outputs)

    def outputs(self, texts: Sequence[tuple[str, ...]]) -> Any:
        """Return the logits N x C of classes; the numbers, tags or answers of other tasks."""
        record, examples = self.record, [Example(text, None, "") for text in texts]
        split = encode_split(examples, record.kind, self._text_encoder, record.sequence_length)
        self.num_cut += 0 if record.target.is_of_tokens else split.rows.num_full
        logits_NC = logits_of_rows(self._model, split.rows, uses_bf16=False)
        if record.target.is_of_tokens or not record.labels:
            return record.target.predictions(logits_NC, split)
        return logits_NC.astype(numpy.float64)
