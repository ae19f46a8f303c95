"""Files of tagged words and of questions about texts."""

import json

import pytest

from finetune.tasks.custom import OwnTask, read_own
from finetune.tasks.task import Answer, TaskError

CONLL = """-DOCSTART- -X- O O

Anna NNP B-PER
Bell NNP I-PER
walks VB O

in IN O
Cairo NNP B-LOC
"""
CONTEXT = "Anna walks in Cairo."


def squad(*questions):
    return json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": list(questions)}]}]})


def question(text, *answers):
    found = [{"text": word, "answer_start": CONTEXT.find(word)} for word in answers]
    return {"id": text, "question": text, "answers": found}


def own(folder, suffix, **contents):
    for name, content in contents.items():
        (folder / f"{name}{suffix}").write_text(content)
    return OwnTask(**{name: folder / f"{name}{suffix}" for name in contents})


def test_words_and_tags_are_read_and_tags_of_either_file_are_known(tmp_path):
    files = {"train": CONLL, "dev": "Rome B-CITY\n", "test": "Anna\nsleeps\n\nRome\n"}
    data = read_own(own(tmp_path, ".conll", **files))
    assert data.task.labels == ("B-CITY", "B-LOC", "B-PER", "I-PER", "O")
    assert [example.texts for example in data.train] == [("Anna", "Bell", "walks"), ("in", "Cairo")]
    assert [example.label for example in data.train] == [(2, 3, 4), (4, 1)]
    assert [(one.texts, one.label) for one in data.test["test"]] == [
        (("Anna", "sleeps"), None),
        (("Rome",), None),
    ]


def test_questions_have_the_places_of_their_answers_or_none(tmp_path):
    who, where = question("Who?", "Anna"), question("Where?", "Cairo", "in Cairo")
    asked = squad(who, where, question("?"), question("Why?", ""))
    data = read_own(own(tmp_path, ".json", train=asked, dev=asked))
    assert [example.texts for example in data.train] == [
        *((text, CONTEXT) for text in ("Who?", "Where?", "?", "Why?"))
    ]
    places = [((0, "Anna"),), ((14, "Cairo"), (11, "in Cairo")), (), ()]
    assert [example.label for example in data.train] == places
    assert isinstance(data.train[0].label[0], Answer)
    # Those about one text stay together, here all of them.
    with pytest.raises(TaskError, match="4 rows are too few, or too alike, to hold some out"):
        read_own(own(tmp_path, ".json", train=asked))


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".conll", "Anna B-PER\nwalks\n", "row 2: 'walks' has no tag"),
        (
            ".conll",
            "1 Anna B\n2 and O\n\n1 So O\n",
            "first column numbers the words; keep those of words",
        ),
        (".conll", "Anna B-PER\n# id = 7\n", "row 2: 4 columns where the first word has 2"),
        (".conll", "\n", "has no words"),
        (".conll", "a O\n", "no tag but O"),
        (".json", "[]", "has not the form of SQuAD"),
        (".json", squad(question(None)), "a question or context is no text"),
        (".json", "[" * 100_000, "has not the form of SQuAD (RecursionError"),
        (".json", '{"data": []}', "has no questions"),
        (".json", squad(question("Where?", "Rome")), "'Rome' to 'Where?' is not at character -1"),
    ],
)
def test_a_bad_file_is_answered_with_the_fix(tmp_path, suffix, content, message):
    with pytest.raises(TaskError) as caught:
        read_own(own(tmp_path, suffix, train=content, dev=content))
    assert message in str(caught.value) and "TaskError" not in str(caught.value)


def test_options_of_tables_are_refused(tmp_path):
    with pytest.raises(ValueError, match="label: .* has tags and no columns to choose from"):
        OwnTask(train=tmp_path / "a.conll", label="tag")
    for names in (("a.conll", "b.csv"), ("a.csv", "b.conll")):
        with pytest.raises(ValueError, match="give files of one format"):
            OwnTask(train=tmp_path / names[0], dev=tmp_path / names[1])
    OwnTask(train=tmp_path / "a.conll", dev=tmp_path / "b.CONLL")
