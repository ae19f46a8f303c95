"""Files of tasks about tokens: tags of words (CoNLL 2003) and answers in texts (SQuAD)."""

import json
import re
from pathlib import Path

from data_prep.files.quoting import is_unicode, quoted
from finetune.tasks.tables import lines_of
from finetune.tasks.task import Answer, Example, Kind, TaskError

KINDS: dict[str, Kind] = {".conll": "tags", ".json": "answers"}  # by the suffix of the file
Words = tuple[str, ...]


def read_sentences(file: Path, is_labelled: bool) -> list[tuple[Words, Words]]:
    """Return words and tags of each sentence: a word a line, its tag last, then an empty line.

    Raises:
        TaskError: the file cannot be read, or has no words or tags, or columns differ.
    """
    found, words, tags = list[tuple[Words, Words]](), list[str](), list[str]()
    width = 0
    for number, line in enumerate([*lines_of(file), ""], start=1):
        columns = re.findall(r"[^ \t]+", line)  # a word may hold other spaces
        if columns and columns[0] != "-DOCSTART-":
            if is_labelled and len(columns) == 1:
                raise TaskError(f"{file}, row {number}: {quoted(columns[0])} has no tag; add it")
            width = width or len(columns)
            if len(columns) != width:
                raise TaskError(
                    f"{file}, row {number}: {len(columns)} columns where the first word has "
                    f"{width}; remove comments, and spaces in words"
                )
            words.append(columns[0])
            tags.append(columns[-1])
        elif words:
            found.append((tuple(words), tuple(tags)))
            words, tags = [], []
    if not found:
        raise TaskError(f"{file} has no words; each is a line, with its tag in the last column")
    if len(found) > 1 and all(words[0] == "1" for words, _ in found):
        raise TaskError(
            f"{file}: the first column numbers the words; keep those of words and tags, as "
            "cut -f2,4 does of CoNLL-U"
        )
    return found


def read_questions(file: Path, is_labelled: bool) -> list[Example]:
    """Return the questions of a file of SQuAD 1.1 or 2.0, each with its text.

    Raises:
        TaskError: the file is no such file, or an answer is not where it should be.
    """
    found = list[Example]()
    try:
        for article in json.loads("\n".join(lines_of(file)))["data"]:
            for paragraph in article["paragraphs"]:
                for one in paragraph["qas"]:
                    texts, answers = (one["question"], paragraph["context"]), one.get("answers", ())
                    if not all(isinstance(text, str) and is_unicode(text) for text in texts):
                        raise TypeError("a question or context is no text")
                    label = tuple(Answer(each["answer_start"], each["text"]) for each in answers)
                    label = tuple(each for each in label if each.text)  # as SQuAD's own script
                    for start, text in label:
                        if texts[1][start : start + len(text)] != text:
                            raise TaskError(
                                f"{file}: the answer {quoted(text)} to {quoted(texts[0])} is not "
                                f"at character {start:,} of its context; fix answer_start"
                            )
                    identity = str(one.get("id", len(found)))
                    found.append(Example(texts, label if is_labelled else None, identity))
    except TaskError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TaskError(
            f"{file} has not the form of SQuAD ({error!r}): data, paragraphs, context, qas, "
            "question, answers, text, answer_start; a table of JSON is a .jsonl file"
        ) from None
    if not found:
        raise TaskError(f"{file} has no questions; give a file with some")
    return found
