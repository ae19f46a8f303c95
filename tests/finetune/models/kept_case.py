"""Tiny encoders that are fine-tuned on texts, and the folders in which they are kept."""

import random
from typing import NamedTuple

import numpy
import torch
import transformers

from finetune.models.kept_model import save_model
from finetune.results.model_folder import MODEL_FOLDER
from finetune.results.result import TrialResult
from finetune.tasks.task import Example, Task, TaskData
from finetune.training.encoding import encode_task
from finetune.training.model import attention_on
from finetune.training.train import FineTuning, build_task_model
from pretrain.convert.pretrained import Pretrained
from tests.finetune.fine_tuning_case import Notes, protocol, tiny_pretrained
from tests.pretrain.convert.small_tokenizers import like_roberta, text_encoder_of, trained

LENGTH = 24
ROLES = ("cls", "pad", "sep", "unk", "mask")
WORDS = ("the", "parser", "reads", "a", "file", "and", "returns", "list", "of", "names", "words")


class Trained(NamedTuple):
    """What a trial had in its hands when it wrote its model."""

    folder: object  # of the model
    run: FineTuning
    data: TaskData
    result: TrialResult
    pretrained: Pretrained


def sentences(count, seed):
    generator = random.Random(seed)
    return [
        " ".join(generator.choices(WORDS, k=generator.randrange(2, 30))) + "." * (number % 2)
        for number in range(count)
    ]


def task_data(*, regression=False, pair=False, start=0.0):
    """How long is the (first) text: one of three classes, or 1000 for each letter, from `start`."""
    task = Task(
        "letters",
        () if regression else ("few", "more", "many, many"),
        ("pearson", "spearman") if regression else ("accuracy", "macro_f1"),
        ("first", "second") if pair else ("text",),
        "size",
    )

    def number(text):
        return start + 1000.0 * len(text)

    def split(count, seed):
        rows = [(text,) for text in sentences(count, seed)]
        if pair:
            rows = [(text, other) for (text,), other in zip(rows, sentences(count, 9), strict=True)]
        return [
            Example(row, number(row[0]) if regression else min(len(row[0]) // 40, 2), str(n))
            for n, row in enumerate(rows)
        ]

    return TaskData(task, split(20, 0), {"dev": split(12, 1)}, {})


def save_transformers_model(place, kind, *, auto=transformers.AutoModelForMaskedLM):
    """Save a small model of new weights with a tokenizer, as transformers does; return its folder.

    To RoBERTa's and ModernBERT's tokenizers the space before a word is a part of it.
    """
    tokenizer, names = trained("wordpiece"), [f"[{role.upper()}]" for role in ROLES]
    if kind in ("roberta", "modernbert"):
        tokenizer, names = like_roberta(), ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokens = {f"{role}_token": name for role, name in zip(ROLES, names, strict=True)}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    config = transformers.CONFIG_MAPPING[kind](
        **{"vocab_size": len(fast), "hidden_size": 32, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "max_position_embeddings": 34},
        **{"hidden_dim" if kind == "distilbert" else "intermediate_size": 64},
        **{"pad_token_id": fast.pad_token_id, "cls_token_id": fast.cls_token_id},
    )
    torch.manual_seed(3)
    for part in (fast, auto.from_config(config)):
        part.save_pretrained(place)
    return place


def fine_tuned(place, *, regression=False, pair=False, start=0.0, pretrained=None, **variant):
    """Fine-tune for an epoch, and keep the model in the folder `place`."""
    place.mkdir(parents=True, exist_ok=True)
    if pretrained is None:
        text_encoder = text_encoder_of(trained("wordpiece"), place)
        (place / "tokenizer.json").unlink()
        pretrained = tiny_pretrained(**{"vocabulary_size": 400, **variant})._replace(
            text_encoder=text_encoder, sequence_length=LENGTH
        )
    # New weights are so small that all texts have nearly equal outputs.
    weights = {name: 10 * w if w.dim() == 2 else w for name, w in pretrained.weights.items()}
    pretrained = pretrained._replace(weights=weights)
    data = task_data(regression=regression, pair=pair, start=start)
    rows = encode_task(data, pretrained.text_encoder, sequence_length=LENGTH, orders=1 + pair)
    rules = protocol(epochs=1)
    device = torch.device("cpu")
    model = build_task_model(
        *(pretrained, rules),
        target=rows.target,
        seed=0,
        attention=attention_on(device, pretrained.model),
    )
    run = FineTuning(model, rows, rules, learning_rate=1e-3, seed=0, device=device)
    outcome = run.run(Notes(), [].append)
    result = TrialResult(
        **{"model": "tiny", "source": "/tiny", "step": 7, "pretrained": True, "task": "letters"},
        **{"protocol": "test", "learning_rate": 1e-3, "seed": 0, "epochs": 1},
        **{"status": "finished", "scores": outcome.scores},
    )
    save_model(place, model, rows, pretrained, result)
    return Trained(place / MODEL_FOLDER, run, data, result, pretrained)


def outputs_in_training(case):
    """Return what the trainer computes for the development set."""
    split = case.run.data.development["dev"]
    logits = case.run.logits(split)
    return (
        logits if case.data.task.labels else numpy.array(case.run.data.target.predictions(logits))
    )


def development_texts(case):
    return [example.texts for example in case.data.development["dev"]]
