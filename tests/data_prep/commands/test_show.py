import re

import numpy as np
import pytest

from data_prep.commands.show import shown_sequences
from data_prep.masking import IGNORED, mask_sequences
from data_prep.shards.format import open_shards
from tests.data_prep.small_shards import (
    SPECIAL,
    WORDS,
    random_documents,
    word_tokenizer,
    write_folder,
)


def parts_of(text):
    """Return {"text": ..., "masked": ..., "answers": ...} of the first row that is shown."""
    row = text.split("train sequence")[1]
    parts = re.split(r"\n  (text|masked|answers) +", row)[1:]
    unwrapped = [re.sub(r"\s+", " ", part).strip() for part in parts]
    return dict(zip(unwrapped[::2], unwrapped[1::2], strict=True))


def shown(folder, *, count=1):
    return "\n".join(shown_sequences(open_shards(folder), "train", count=count))


def test_pieces_of_words_are_joined(tmp_path):
    sentence = ["a", "slow", "##ly", "found", "boat", "."]
    ids = [WORDS.index(word) + len(SPECIAL) for word in sentence] * 5
    parts = parts_of(shown(write_folder(tmp_path / "shards", {"train": [ids]})))
    assert parts["text"].startswith("[CLS] a slowly found boat. a slowly found boat.")
    assert parts["text"].endswith("[SEP]")


def test_every_answer_names_its_column_what_is_shown_and_what_was_there(tmp_path):
    folder = write_folder(tmp_path / "shards", {"train": random_documents(30)})
    shards, name_of = open_shards(folder), word_tokenizer().id_to_token
    number = np.array([0])
    row = shards.split("train").read(number)
    parts = parts_of(shown(folder))
    masked = mask_sequences(row, number, seed=0, epoch=0, tokenizer=shards.manifest.tokenizer)
    places = masked.positions[masked.labels != IGNORED].tolist()
    assert parts["answers"].split(", ") == [
        f"{place}: {name_of(masked.ids[0, place])} was {name_of(row[0, place])}" for place in places
    ]
    assert parts["masked"].count("[MASK]") == int((masked.ids == SPECIAL["mask"]).sum())


@pytest.mark.parametrize("count", [3, 1000])
def test_rows_are_spread_over_the_split(tmp_path, count):
    folder = write_folder(tmp_path / "shards", {"train": random_documents(60)})
    last = open_shards(folder).split("train").num_sequences - 1
    numbers = [int(n) for n in re.findall(r"train sequence (\d+)", shown(folder, count=count))]
    assert numbers[0] == 0
    assert len(numbers) == min(count, last + 1)
    assert numbers[-1] == last
