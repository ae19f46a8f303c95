"""The command learns tags and answers, and transformers finds the same in the kept model."""

import csv
import json
import random

import pytest
import torch
import transformers

from pretrain.convert.exports.in_transformers import quiet
from tests.finetune.models.kept_case import save_transformers_model
from tupelo.__main__ import main


@pytest.fixture(scope="module", params=["own", "bert", "modernbert"])
def encoder(request, run, tmp_path_factory):
    """A run, or a small model of transformers with new weights."""
    if request.param == "own":
        return run
    return save_transformers_model(tmp_path_factory.mktemp("models"), request.param)


def tagged(number, seed):
    """Return sentences in which the word determines its tag, and a person has two words."""
    draw, lines = random.Random(seed), []
    words = (["a B-PER", "b I-PER"], ["cd B-LOC"], ["e O"])
    for _ in range(number):
        lines += [line for word in draw.choices(words, k=draw.randint(2, 6)) for line in word]
        lines.append("")
    return "\n".join(lines)


def questions(number, seed):
    """Return texts of letters, in which the answer comes after the letter of the question."""
    draw, paragraphs = random.Random(seed), []
    for _ in range(number):
        letters, place = draw.choices("abcdefgh", k=6), draw.randrange(5)
        asked = letters[place] = draw.choice("lm")
        answers = [{"text": letters[place + 1], "answer_start": 2 * (place + 1)}]
        asks = [{"question": asked, "answers": answers}, {"question": "z", "answers": []}]
        paragraphs.append({"context": " ".join(letters), "qas": asks})
    return json.dumps({"data": [{"paragraphs": paragraphs}]})


def fine_tuned(encoder, folder, suffix, make, *words):
    """Fine-tune, and return the folder of the trial and the development file."""
    for name, count in (("train", 200), ("dev", 20)):
        (folder / f"{name}{suffix}").write_text(make(count, count))
    files = [word for n in ("train", "dev") for word in (f"--{n}", folder / f"{n}{suffix}")]
    options = ("--seeds", 1, "--batch", 16, "--to", folder / "sweep", "--dropout", 0, *words)
    main(["finetune", "run", *map(str, (encoder, *files, *options))])
    (model,) = (folder / "sweep").rglob("model")
    return model.parent, folder / f"dev{suffix}"


def loaded(trial, auto):
    """Return the kept model and its tokenizer, as transformers loads them."""
    with quiet():
        kinds = (auto, transformers.AutoTokenizer)
        return [each.from_pretrained(trial / "model", trust_remote_code=True) for each in kinds]


def predicted(trial, file, capsys):
    """Return the predictions of the command, which are those of training."""
    capsys.readouterr()
    main(["finetune", "predict", str(trial), str(file)])
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    lines = json.loads((trial / "predictions_dev.json").read_text())
    known = [line["prediction"] for line in lines]
    found = [row["prediction"] for row in rows]
    assert found == [" ".join(each) if isinstance(each, list) else each for each in known]
    return lines


def test_tags_are_learned_and_the_same_in_transformers(encoder, tmp_path, in_this_process, capsys):
    words = ("--learning_rates", "1e-2", "--epochs", "6", "--class_weights", "balanced")
    trial, file = fine_tuned(encoder, tmp_path, ".conll", tagged, *words)
    lines = predicted(trial, file, capsys)
    model, tokenizer = loaded(trial, transformers.AutoModelForTokenClassification)
    right, sentences = 0, file.read_text().split("\n\n")
    spoken = [[row.split()[0] for row in one.split("\n") if row] for one in sentences]
    (tmp_path / "new.txt").write_text("".join(" ".join(words) + "\n" for words in spoken))
    written = tmp_path / "new.conll"
    main(["finetune", "predict", *map(str, (trial, tmp_path / "new.txt", "--to", written))])
    again = [row.split() for row in written.read_text().split("\n")[:-1]]
    tagged_words = zip(spoken, (line["prediction"] for line in lines), strict=True)
    assert again == [
        pair for one in tagged_words for pair in [*map(list, zip(*one, strict=True)), []]
    ]
    for words, line in zip(spoken, lines, strict=True):
        batch = tokenizer(" ".join(words), return_tensors="pt")
        starts = [sum(len(word) + 1 for word in words[:n]) for n in range(len(words))]
        places = [batch.char_to_token(0, start) for start in starts]
        with torch.no_grad():
            best = model(**batch).logits[0, places].argmax(-1).tolist()
        assert [model.config.id2label[tag] for tag in best] == line["prediction"]
        right += line["prediction"] == line["expected"]
    assert right > 15
    rows = csv.DictReader((tmp_path / "sweep" / "classes.csv").open())
    tags = [tag for line in lines for tag in line["expected"]]
    assert {row["class"]: int(row["examples"]) for row in rows} == {
        **{tag: tags.count(tag) for tag in tags},
        "macro average": len(tags),
    }


def test_answers_are_learned_and_the_same_in_transformers(
    encoder, tmp_path, in_this_process, capsys
):
    words = ("--learning_rates", "5e-3", "--epochs", "8")
    trial, file = fine_tuned(encoder, tmp_path, ".json", questions, *words)
    lines = predicted(trial, file, capsys)
    model, tokenizer = loaded(trial, transformers.AutoModelForQuestionAnswering)
    asked = [
        (one["question"], paragraph["context"])
        for paragraph in json.loads(file.read_text())["data"][0]["paragraphs"]
        for one in paragraph["qas"]
    ]
    right = 0
    for (question, context), line in zip(asked, lines, strict=True):
        batch = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
        spans, parts = batch.pop("offset_mapping")[0].tolist(), batch.sequence_ids(0)
        with torch.no_grad():
            found = model(**batch)
        starts, ends = found.start_logits[0].tolist(), found.end_logits[0].tolist()
        places = [place for place, part in enumerate(parts) if part == 1]
        pairs = [(a, b) for a in places for b in places if a <= b]
        first, last = max(pairs, key=lambda pair: starts[pair[0]] + ends[pair[1]])
        text = context[spans[first][0] : spans[last][1]].strip()
        has_none = starts[0] + ends[0] >= starts[first] + ends[last]
        assert line["prediction"] == ("" if has_none else text)
        right += line["prediction"] in (line["expected"] or [""])
    assert right > 25
