"""The model card of a fine-tuned model: labels, scores, training."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import ModelCardData
from torch import Tensor

from finetune.models.kept_record import KeptRecord
from finetune.results.result import TrialResult
from finetune.tasks.catalog import suite_of
from finetune.training.encoding import EncodedTask
from pretrain.convert.exports.model_card import OTHER_LICENCE, encoder_rows, save_card


def write_card(
    folder: Path,
    record: KeptRecord,
    weights: Mapping[str, Tensor],
    data: EncodedTask,
    result: TrialResult,
) -> None:
    """Write README.md."""
    task, known = data.task, data.train.labels
    known = known[: len(known) // data.orders]
    suite, architecture = suite_of(task.name), record.architecture
    step = "" if result.step is None else f" step {result.step:,}"
    source = suite.hub if suite else task.file
    counts = Counter(n for each in known for n in (each if isinstance(each, tuple) else [each]))
    labels = [f"{label} {counts[index]:,}" for index, label in enumerate(task.labels)]
    examples = {"train": len(known)} | {n: len(s.examples) for n, s in data.development.items()}
    example = '{"text": "The first text.", "text_pair": "The second text."}'
    example = example if len(task.texts) == 2 else '"A text."'
    uses = {"tags": "token-classification", "answers": "question-answering"}
    use = uses.get(task.kind, "text-classification")
    save_card(
        folder,
        ModelCardData(
            library_name="transformers",
            pipeline_tag=use,
            **OTHER_LICENCE,
            datasets=[suite.hub] if suite and suite.hub else None,  # names on the Hub
            tags=["fine-tuned", "tupelo"],
        ),
        place=Path(folder.stem),
        kind=use,
        name=f"{result.model}{step} on {task.name}",
        tables={
            "Model": [
                ["encoder", result.model],
                *encoder_rows(record.model, weights),
                ["in transformers", architecture or "code of this folder"],
                ["predicts", ", ".join(task.labels or (task.label,))],
            ],
            "Scores of the development set, times 100": [
                [f"{task.title(split)}, {metric}", f"{100 * value:.1f}"]
                for split, metrics in result.scores.items()
                for metric, value in metrics.items()
            ],
            "Training": [
                *([["training data", source]] if source else []),
                ["examples", ", ".join(f"{name} {count:,}" for name, count in examples.items())],
                *([["labels in training", ", ".join(labels)]] if labels else []),
                ["task", task.name],
                ["text", ", ".join(task.texts)],
                ["protocol", result.protocol],
                ["learning rate", f"{result.learning_rate:g}"],
                ["epochs", result.epochs],
                ["seed", result.seed],
            ],
        },
        has_own_code=architecture is None,
        example=example + ", top_k=None" * (task.kind == "multi-label"),
        sequence_length=record.sequence_length,
        moses=record.tokenizer.moses if task.kind != "answers" else None,
    )
