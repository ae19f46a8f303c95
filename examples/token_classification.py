"""Tag the words of sentences with an exported encoder and transformers' Trainer.

    python examples/token_classification.py my_model --train train.conll --dev dev.conll --to tagger

Files are as those of CoNLL 2003: a word a line, its tag (B-PER, I-PER, O) in the last column, an
empty line after each sentence. Needs torch, transformers and accelerate, and nothing of Tupelo.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
)

IGNORED = -100  # the label of what is no beginning of a word


class Sentence(NamedTuple):
    """Words and their tags."""

    words: list[str]
    tags: list[str]


def main() -> None:
    """Train, save, and print the F1 of the entities of the development set."""
    options = read_options()
    train, dev = read_sentences(options.train), read_sentences(options.dev)
    names = sorted({tag for sentence in train for tag in sentence.tags})
    tokenizer = AutoTokenizer.from_pretrained(options.model, trust_remote_code=True)
    model = AutoModelForTokenClassification.from_pretrained(
        options.model,
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
        trust_remote_code=True,
    )
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
        train_dataset=[encoded(sentence, names, tokenizer) for sentence in train],
        data_collator=DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(options.to)
    found = trainer.predict([encoded(sentence, names, tokenizer) for sentence in dev])
    predicted = [
        tags_of(sentence, [names[guess] for guess in guesses], tokenizer)
        for sentence, guesses in zip(dev, found.predictions.argmax(-1), strict=True)
    ]
    print(f"entity F1 {entity_f1([sentence.tags for sentence in dev], predicted):.4f}")


def read_sentences(file: Path) -> list[Sentence]:
    """Return the sentences of a file."""
    sentences, words, tags = [], [], []
    for line in [*file.read_text(encoding="utf-8").splitlines(), ""]:
        if line.strip() and not line.startswith("-DOCSTART-"):
            columns = line.split()
            words.append(columns[0])
            tags.append(columns[-1])
        elif words:
            sentences.append(Sentence(words, tags))
            words, tags = [], []
    return sentences


def encoded(sentence: Sentence, names: list[str], tokenizer: Any) -> dict[str, list[int]]:
    """Return a row in which the first piece of each word has its label; of new tags none."""
    numbers = {name: number for number, name in enumerate(names)}
    row = tokenizer(sentence.words, is_split_into_words=True, truncation=True)
    labels = [
        IGNORED if word is None else numbers.get(sentence.tags[word], IGNORED)
        for word in begun_words(row)
    ]
    return {**row, "labels": labels}


def tags_of(sentence: Sentence, guesses: list[str], tokenizer: Any) -> list[str]:
    """Return a tag for each word: the guess at its first piece, O for words that were cut off."""
    tags = ["O"] * len(sentence.words)
    row = tokenizer(sentence.words, is_split_into_words=True, truncation=True)
    for word, guess in zip(begun_words(row), guesses, strict=False):  # guesses at padding follow
        if word is not None:
            tags[word] = guess
    return tags


def begun_words(row: Any) -> list[int | None]:
    """Return for each piece the word of which it is the first."""
    words = row.word_ids()
    return [
        None if word == before else word
        for before, word in zip([None, *words], words, strict=False)
    ]


def entity_f1(expected: list[list[str]], predicted: list[list[str]]) -> float:
    """Return the F1 of whole entities."""
    true, found = (
        {(row, *entity) for row, tags in enumerate(rows) for entity in entities(tags)}
        for rows in (expected, predicted)
    )
    return 2 * len(true & found) / max(1, len(true) + len(found))


def entities(tags: list[str]) -> list[tuple[str, int, int]]:
    """Return the kind of each entity, its first word, and the word after its last."""
    found: list[tuple[str, int, int]] = []
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        if mark == "I" and found and found[-1][::2] == (kind, place):
            found[-1] = (kind, found[-1][1], place + 1)
        elif mark != "O":
            found.append((kind, place, place + 1))
    return found


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a folder of `tupelo export`")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--to", required=True, help="folder of the tagger")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
