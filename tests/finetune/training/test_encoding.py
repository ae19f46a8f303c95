"""Rows of texts, of tagged words and of questions: what the model sees, learns, and is asked."""

from types import SimpleNamespace

import numpy
import pytest
import torch

from finetune.tasks.task import Answer, Example, Task, TaskData
from finetune.training.encoding import encode_split, encode_task
from finetune.training.metrics import METRICS
from finetune.training.targets import Spans, Tags, target_of
from tests.pretrain.convert.small_tokenizers import text_encoder_of, trained


class Letters:
    """A text encoder of which every letter is a token, and the space before a word part of one."""

    pad, special, between = 0, {"cls": 2, "sep": 3}, [3]
    record = SimpleNamespace(moses=None)

    def ids(self, first, second, *, max_length):
        return [2, *map(ord, first), 3, *map(ord, second), 3][:max_length]

    def pieces(self, text):
        pairs = [(n, letter) for n, letter in enumerate(text) if letter not in " \u0301"]
        return [ord(a) for _, a in pairs], [(n - (text[n - 1 : n] == " "), n + 1) for n, _ in pairs]


def logits_of(split, marks, num_outputs):
    """Return zeros, but 1 where `marks` has row, place, and output."""
    starts = [0, *split.rows.num_places.cumsum()]
    found = numpy.zeros((starts[-1], num_outputs), numpy.float32)
    for row, place, output, value in marks:
        found[starts[row] + place, output] = value
    return found


def test_a_word_has_the_output_of_its_first_token_in_a_window_with_tokens_before_it():
    example = Example(("ab", "c", "def", "g", "hi", ""), (0, 1, 2, 0, 1, 0), "0")
    split = encode_split([example], "tags", Letters(), 10)
    row, second = split.meaning
    assert row.ids.tolist() == [2, *map(ord, "abcdefgh"), 3]
    assert (row.where.tolist(), row.label) == ([0, 1, 2, 3, 4], (0, 1, 2, 0, 1))
    assert second.ids.tolist() == [2, *map(ord, "ghi"), 3]
    assert (second.places.tolist(), second.where.tolist(), second.label) == ([2], [4], (1,))
    assert split.rows.batch(numpy.array([0, 1])).positions_M.tolist() == [1, 3, 4, 7, 8, 12]
    target = target_of(Task("t", ("A", "B", "O"), (), ("words",), form="tags"), [example.label])
    logits = logits_of(split, [(0, 0, 1, 1.0), (0, 3, 1, 1.0), (1, 0, 1, 1.0)], 3)
    assert target.predictions(logits, split) == [(1, 0, 0, 1, 1, 2)]  # the last has no token


def test_tagged_words_go_through_moses_where_the_text_of_training_did(tmp_path):
    encoder = text_encoder_of(trained("wordpiece", moses="en"), tmp_path, moses="en")
    example = Example(("The", "parser's", "names."), (0, 1, 2), "0")
    (row,) = encode_split([example], "tags", encoder, 40).meaning
    assert row.ids.tolist() == encoder.ids("The parser's names.")
    assert (row.where.tolist(), row.label) == ([0, 1, 2], (0, 1, 2))


def test_windows_cover_the_text_and_hold_the_answer_where_they_can():
    text = "abcdefghij" * 4
    example = Example(("q" * 30, text), (Answer(17, "hij"),), "0")
    split = encode_split([example], "answers", Letters(), 20)
    covered = set()
    for row in split.meaning:
        assert len(row.ids) <= 20 and row.ids[:10].tolist() == [2, *[ord("q")] * 8, 3]
        spans = [tuple(span) for span in row.where[1:]]
        assert [chr(row.ids[place]) for place in row.places[1:]] == [text[a:b] for a, b in spans]
        covered |= set(spans)
        first, last, size = row.label
        has_all = {(17, 18), (18, 19), (19, 20)} <= set(spans)
        assert size == len(row.places) and (first > 0) == has_all
        assert not has_all or (row.where[first, 0], row.where[last, 1]) == (17, 20)
    assert covered == {(n, n + 1) for n in range(40)}
    begun = [split.num_begun(numpy.array([n])) for n in range(3)]
    assert begun == [1, 0, 0] and type(begun[0]) is int  # a message that counts


def test_an_answer_ends_with_what_the_tokenizer_drops():
    text = "a cafe\u0301 b"
    example = Example(("q", text), (Answer(2, "cafe\u0301"),), "0")
    (row,) = encode_split([example], "answers", Letters(), 20).meaning
    first, last, _ = row.label
    assert text[row.where[first, 0] : row.where[last, 1]].strip() == "cafe\u0301"


def test_the_best_answer_of_all_windows_wins_unless_every_window_says_none():
    examples = [Example(("q", "abcdefgh"), (), "0"), Example(("q", "xyz"), (), "1")]
    split = encode_split(examples, "answers", Letters(), 9)
    assert [row.example for row in split.meaning] == [0, 0, 1]
    marks = [
        *((0, 2, 0, 3.0), (0, 3, 1, 3.0)),  # "bc"
        *((1, 4, 0, 5.0), (1, 1, 1, 5.0)),  # ends before it begins
        *((0, 0, 0, 9.0), (2, 0, 0, 5.0), (2, 1, 0, 1.0), (2, 3, 1, 1.0)),  # none; "xyz"
    ]
    logits = logits_of(split, marks, 2)
    assert Spans(may_be_none=True).predictions(logits, split) == ["bc", ""]
    assert Spans().predictions(logits, split) == ["bc", "xyz"]


def test_the_losses_are_those_of_each_word_and_of_both_ends():
    torch.manual_seed(0)
    logits = torch.randn(7, 2)
    of_tags = Tags(2).loss(logits, [(0, 1, 1), (1, 0, 0, 1)])
    right = (0, 1, 1, 1, 0, 0, 1)
    plain = [-row.log_softmax(0)[n].item() for row, n in zip(logits, right, strict=True)]
    assert of_tags.item() == pytest.approx(sum(plain) / 7)
    assert Tags(2).loss(logits[:0], [(), ()]).item() == 0  # rows inside one long word
    ends = Spans().loss(logits, [(1, 2, 3), (0, 3, 4)])
    parts = [(logits[:3, 0], 1), (logits[:3, 1], 2), (logits[3:, 0], 0), (logits[3:, 1], 3)]
    plain = [-part.log_softmax(0)[place].item() for part, place in parts]
    assert ends.item() == pytest.approx(sum(plain) / 4)


def test_whole_entities_and_the_best_answer_count():
    true = [["B-LOC", "O", "B-PER", "I-PER"], ["I-ORG", "I-LOC"]]
    found = [["B-LOC", "O", "B-PER", "O"], ["B-ORG", "B-LOC"]]
    assert METRICS["entity_f1"](found, true) == 2 * 3 / (4 + 4)
    assert METRICS["entity_f1"]([["B-X", "I-X", "O"]], [["B-X", "I-X", "E-X"]]) == 0
    assert METRICS["entity_f1"]([["NOUN", "DET"]], [["NOUN", "VERB"]]) == 0.5
    of_three = ["B-X", "M-X", "E-X"]
    assert METRICS["entity_f1"]([[*of_three, "O"]], [[*of_three, "S-X"]]) == 2 / 3
    assert METRICS["entity_f1"]([["S-X", "E-X"]], [["S-X", "S-X"]]) == 1
    assert METRICS["entity_f1"]([[*"BMESS"]], [[*"BMEBE"]]) == pytest.approx(2 / 5)
    answers = [[Answer(0, "The Nile!"), Answer(0, "river Nile")], [], [Answer(0, "one")]]
    guesses = ["a nile river", "", "two"]
    assert METRICS["exact_match"](guesses, answers) == pytest.approx(1 / 3)
    assert METRICS["answer_f1"](guesses, answers) == pytest.approx((1 + 1 + 0) / 3)


@pytest.mark.parametrize("orders", [1, 2])
def test_both_orders_are_rows_of_training_and_one_order_is_scored(orders):
    task = Task("pairs", ("0", "1"), ("accuracy",), ("a", "b"))
    examples = [Example(("ab", "c"), 1, "7"), Example(("d", "e"), 0, "8")]
    data = TaskData(task, examples, {"dev": examples}, {})
    found = encode_task(data, Letters(), sequence_length=9, orders=orders)
    rows = [[2, 97, 98, 3, 99, 3], [2, 100, 3, 101, 3]]
    swapped = [[2, 99, 3, 97, 98, 3], [2, 101, 3, 100, 3]]
    for split, expected, labels in (
        (found.train, rows + swapped * (orders - 1), [1, 0] * orders),
        (found.development["dev"], rows, [1, 0]),
    ):
        for number, row in enumerate(expected):
            assert split.rows.batch([number]).ids_BS[0, : len(row)].tolist() == row
        assert len(split.rows) == len(expected) and split.labels == labels
