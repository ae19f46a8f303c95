import json
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from data_prep.shards import unpacking
from data_prep.shards.format import open_shards
from data_prep.shards.manifest import ShardError
from data_prep.tools import statistics
from data_prep.tools.statistics import count_rows, statistics_of
from data_prep.tools.statistics_report import draw, tables, write_json
from tests.data_prep.small_shards import (
    cut_at_separators,
    random_documents,
    tokens_of,
    word_tokenizer,
    write_folder,
)

BOAT = 6  # an id of "boat"


@pytest.fixture
def shards(tmp_path):
    documents = random_documents(80)
    for number in range(0, 80, 7):
        documents[number] += [1]  # [UNK]
    splits = {"train": documents, "valid": documents[:30]}
    return open_shards(write_folder(tmp_path / "shards", splits, counted=500))


def computed(shards):
    return {
        name: statistics_of(counts, shards, name, word_tokenizer())
        for name, counts in count_rows(shards).items()
    }


@pytest.mark.parametrize("tokens_per_group", [1, 100, 1 << 20])
@pytest.mark.parametrize("name", ["train", "valid"])
def test_the_numbers_are_those_of_a_loop_over_the_tokens(
    shards, name, tokens_per_group, monkeypatch
):
    monkeypatch.setattr(unpacking, "TOKENS_PER_GROUP", tokens_per_group)
    found = computed(shards)[name]
    documents = cut_at_separators(tokens_of(shards, name))
    lengths = sorted(map(len, documents))
    tokens = [token for document in documents for token in document]
    counts = Counter(tokens)
    assert (found.documents, found.tokens) == (len(documents), len(tokens))
    assert found.rows == shards.manifest.splits[name].rows
    spread = found.document_lengths
    assert (spread.minimum, spread.maximum) == (lengths[0], lengths[-1])
    assert spread.mean == pytest.approx(np.mean(lengths), rel=1e-12)
    for share, quartile in (
        (0.25, spread.lower_quartile),
        (0.5, spread.median),
        (0.75, spread.upper_quartile),
    ):
        assert quartile == np.quantile(lengths, share, method="inverted_cdf")
    words = [counts[token] for token in range(5, 105)]
    assert found.vocabulary == 100
    assert found.entries_seen == sum(count > 0 for count in words)
    assert found.entries_below == {
        limit: sum(count < limit for count in words) for limit in (10, 100)
    }
    assert found.unknown_share == counts[1] / len(tokens)
    assert found.tokens_per_word == shards.manifest.splits[name].tokens / 500
    best = sorted(counts.values(), reverse=True)
    assert [count for _, count in found.most_frequent] == best[:20]


@pytest.mark.parametrize("tokens_per_group", [1, 100, 1 << 20])
def test_the_share_of_single_pieces_is_that_of_a_loop_over_the_words(
    shards, tokens_per_group, monkeypatch
):
    monkeypatch.setattr(unpacking, "TOKENS_PER_GROUP", tokens_per_group)
    tokenizer = word_tokenizer()
    names = [tokenizer.id_to_token(token) for token in tokens_of(shards, "train")]
    sizes, previous = [], "[SEP]"
    for name in names:
        if name == "[SEP]":
            pass
        elif not name.startswith("##"):
            sizes.append(1)
        elif previous != "[SEP]" and sizes:
            sizes[-1] += 1
        previous = name
    assert computed(shards)["train"].single_piece_share == pytest.approx(
        sum(size == 1 for size in sizes) / len(sizes), rel=1e-12
    )


def test_what_is_not_known_is_said_to_be_unknown(shards, monkeypatch):
    def refuse(tokenizer):
        raise statistics.TokenizerError("a token does not tell")

    monkeypatch.setattr(statistics, "word_starts", refuse)
    assert computed(shards)["train"].single_piece_share is None
    assert "not known" in tables(computed(shards))


def test_tables_and_json_hold_the_same_numbers(shards, tmp_path):
    statistics = computed(shards)
    table = tables(statistics)
    write_json(statistics, shards, tmp_path / "numbers.json")
    content = json.loads((tmp_path / "numbers.json").read_text())
    assert content["tokenizer_sha256"] == shards.manifest.tokenizer.sha256
    assert set(content["splits"]) == {"train", "valid"}
    for split in content["splits"].values():
        assert f"{split['tokens']:,}" in table
        assert f"{split['document_lengths']['mean']:,.1f}" in table
        token, count = split["most_frequent"][0]
        assert token in table
        assert f"{count / split['tokens']:.2%}" in table


def test_the_picture_has_three_panels_and_is_the_same_for_equal_rows(shards, tmp_path):
    counts = count_rows(shards)
    for name in ("first.png", "second.png"):
        draw(counts, shards, tmp_path / name)
    assert (tmp_path / "first.png").read_bytes() == (tmp_path / "second.png").read_bytes()
    with Image.open(tmp_path / "first.png") as image:
        assert image.size == (2000, 600)
        dark = np.array(image.convert("L")) < 128
    columns = dark.any(axis=0)
    assert all(columns[part].any() for part in (slice(0, 667), slice(667, 1333), slice(1333, None)))


def test_files_that_cannot_be_written_are_named_with_the_option(shards, tmp_path):
    nowhere = tmp_path / "missing" / "file"
    with pytest.raises(ShardError, match=r"missing/file: cannot be written .* with --json"):
        write_json(computed(shards), shards, nowhere)
    with pytest.raises(ShardError, match=r"missing/file: cannot be written .* with --picture"):
        draw(count_rows(shards), shards, nowhere)


def test_a_separator_is_neither_token_nor_word(tmp_path):
    folder = write_folder(tmp_path / "shards", {"train": [[BOAT]] * 200})
    found = computed(open_shards(folder))["train"]
    assert found.most_frequent == [("boat", found.tokens)]
    assert found.tokens == found.documents
    assert found.single_piece_share == 1


def test_a_tokenizer_without_unknown_tokens_has_no_unknown_share(shards):
    special = {k: v for k, v in shards.manifest.tokenizer.special_tokens.items() if k != "unk"}
    record = shards.manifest.tokenizer.model_copy(update={"special_tokens": special})
    shards.manifest = shards.manifest.model_copy(update={"tokenizer": record})
    assert computed(shards)["train"].unknown_share is None
