"""Find the answers to questions in texts with an exported encoder and transformers' Trainer.

    python examples/question_answering.py my_model --train train.json --dev dev.json --to reader

Files are as those of SQuAD 1.1 and 2.0. Needs torch, transformers and accelerate, and nothing of
Tupelo.
"""

import argparse
import json
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

LONGEST_ANSWER = 30  # tokens
ARTICLES = re.compile(r"\b(a|an|the)\b")


class Question(NamedTuple):
    """A question, the text with its answers, and where each begins; none: the text has none."""

    question: str
    context: str
    answers: list[str]
    starts: list[int]


class Window(NamedTuple):
    """A part of the text as a row: what the model gets, and the characters of each token.

    The labels are the first and the last token of the first answer, or [CLS], 0, where the window
    does not have it. Tokens that are not of the text have no span.
    """

    inputs: dict[str, list[int]]
    labels: dict[str, int]
    spans: list[tuple[int, int] | None]


def main() -> None:
    """Train, save, and print exact match and F1 of the development set."""
    options = read_options()
    tokenizer = AutoTokenizer.from_pretrained(options.model, trust_remote_code=True)
    model = AutoModelForQuestionAnswering.from_pretrained(options.model, trust_remote_code=True)
    train, dev = read_questions(options.train), read_questions(options.dev)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=options.to,
            num_train_epochs=options.epochs,
            learning_rate=options.learning_rate,
            per_device_train_batch_size=options.batch,
            save_strategy="no",
            report_to="none",
            seed=options.seed,
        ),
        train_dataset=[
            {**window.inputs, **window.labels}
            for question in train
            for window in windows_of(question, tokenizer)
        ],
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(options.to)
    windows = [windows_of(question, tokenizer) for question in dev]
    rows = [window.inputs for several in windows for window in several]
    logits = zip(*trainer.predict(rows).predictions, strict=True)
    may_have_none = not all(question.answers for question in train)
    matches, scores = [], []
    for question, several in zip(dev, windows, strict=True):
        own = [(window, *next(logits)) for window in several]
        found = plain(best_answer(question.context, own, may_be_none=may_have_none))
        true = [plain(text) for text in question.answers or [""]]
        matches.append(float(found in true))
        scores.append(max(f1(found, text) for text in true))
    count = len(dev)
    print(f"exact match {sum(matches) / count:.4f}, F1 {sum(scores) / count:.4f}")


def read_questions(file: Path) -> list[Question]:
    """Return the questions of a file."""
    return [
        Question(
            entry["question"],
            paragraph["context"],
            [found["text"] for found in entry["answers"]],
            [found["answer_start"] for found in entry["answers"]],
        )
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]


def windows_of(question: Question, tokenizer: Any) -> list[Window]:
    """Return the windows of a text, each of them after the question."""
    batch = tokenizer(
        cut(question.question, tokenizer),
        question.context,
        truncation="only_second",
        stride=tokenizer.model_max_length // 4,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    windows = []
    for number, offsets in enumerate(batch["offset_mapping"]):
        parts = batch.sequence_ids(number)
        spans = [
            tuple(span) if part == 1 else None for span, part in zip(offsets, parts, strict=True)
        ]
        first, last = tokens_of_answer(question, spans)
        inputs = {name: batch[name][number] for name in tokenizer.model_input_names}
        windows.append(Window(inputs, {"start_positions": first, "end_positions": last}, spans))
    return windows


def cut(text: str, tokenizer: Any) -> str:
    """Return the beginning of a question that leaves half of each row to the window."""
    row = tokenizer(
        text,
        add_special_tokens=False,
        truncation=True,
        max_length=tokenizer.model_max_length // 2,
        return_offsets_mapping=True,
    )
    spans = row["offset_mapping"]
    return text[: spans[-1][1]] if spans else ""


def tokens_of_answer(question: Question, spans: list[Any]) -> tuple[int, int]:
    """Return the first and the last token of the first answer; 0 and 0 where it is not there."""
    if not question.answers:
        return 0, 0
    start = question.starts[0]
    end = start + len(question.answers[0])
    inside = [(place, span) for place, span in enumerate(spans) if span is not None]
    firsts = [place for place, (begin, after) in inside if begin <= start < after]
    lasts = [place for place, (begin, after) in inside if begin < end <= after]
    return (firsts[0], lasts[0]) if firsts and lasts else (0, 0)


def best_answer(context: str, windows: list[tuple[Window, Any, Any]], *, may_be_none: bool) -> str:
    """Return the span with the largest sum of logits; empty where that of [CLS] is larger.

    Args:
        context: the text.
        windows: of the text, with the logits of the starts and of the ends.
        may_be_none: whether a text may have no answer.
    """
    text, best = "", float("-inf")
    if may_be_none:
        # A window without the answer learns [CLS] too: no answer needs all of them to say so.
        best = min(starts[0] + ends[0] for _, starts, ends in windows)
    for window, starts, ends in windows:
        for first, span in enumerate(window.spans):
            for last in range(first, min(first + LONGEST_ANSWER, len(window.spans))):
                after = window.spans[last]
                if span and after and starts[first] + ends[last] > best:
                    best = starts[first] + ends[last]
                    text = context[span[0] : after[1]]
    return text


def plain(text: str) -> str:
    """Return a text without case, punctuation, articles and repeated spaces, as SQuAD compares."""
    letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(ARTICLES.sub(" ", letters).split())


def f1(found: str, true: str) -> float:
    """Return the F1 of the words of two plain texts; of two empty ones 1."""
    words, expected = found.split(), true.split()
    common = sum((Counter(words) & Counter(expected)).values())
    if not words or not expected:
        return float(words == expected)
    return 2 * common / (len(words) + len(expected))


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a folder of `tupelo export`")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--to", required=True, help="folder of the reader")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
