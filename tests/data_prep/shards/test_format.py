import shutil

import h5py
import numpy as np
import pytest
from tokenizers import Tokenizer

from data_prep.commands.verify import verify
from data_prep.shards.format import open_shards
from data_prep.shards.manifest import ShardError, sha256_of
from tests.data_prep.small_shards import (
    cut_at_separators,
    random_documents,
    tokens_of,
    word_tokenizer,
    write_folder,
)


@pytest.fixture
def folder(tmp_path):
    documents = random_documents(40)
    return write_folder(tmp_path / "shards-folder", {"train": documents, "valid": documents[:20]})


@pytest.mark.parametrize(("num_words", "dtype"), [(100, np.uint16), (66_000, np.uint32)])
def test_sequences_are_read_as_they_were_written_in_any_order(tmp_path, num_words, dtype):
    documents = random_documents(40)
    documents[3][0] = num_words - 1
    folder = write_folder(
        tmp_path / "s", {"train": documents}, tokenizer=word_tokenizer(num_words), longest=7
    )
    shards = open_shards(folder)
    found = cut_at_separators(tokens_of(shards, "train"))
    assert found[:-1] == documents[: len(found) - 1]
    split = shards.split("train")
    numbers = np.arange(split.num_sequences)
    order = np.random.default_rng(1).permutation(numbers).astype(np.uint32)
    assert split.read(order).dtype == dtype
    assert (split.read(order) == split.read(numbers)[order]).all()


def test_sequences_are_one_contiguous_data_set_tied_to_the_tokenizer(folder):
    manifest = open_shards(folder).manifest
    with h5py.File(folder / "train-00000.h5") as shard:
        assert shard["ids"].chunks is None
        assert shard["ids"].dtype == np.uint16
        assert shard.attrs["tokenizer_sha256"] == sha256_of(folder / "tokenizer.json")
        assert shard.attrs["sequence_length"] == shard["ids"].shape[1] == manifest.sequence_length


def test_no_sequence_is_an_array_without_rows(folder):
    assert open_shards(folder).split("valid").read(np.array([], np.int64)).shape == (0, 16)


def test_the_fingerprint_is_that_of_the_sequences_and_the_tokenizer(folder, tmp_path):
    def fingerprint(name, documents, tokenizer=None, split="train"):
        written = write_folder(
            tmp_path / name, dict.fromkeys(["train", "valid"], documents), tokenizer=tokenizer
        )
        return open_shards(written).split(split).fingerprint()

    documents, other = random_documents(40), random_documents(40)
    other[0][0] += 1
    cased = Tokenizer.from_str(word_tokenizer().to_str())
    cased.add_tokens(["Boat"])
    first = open_shards(folder).split("train").fingerprint()
    assert fingerprint("again", documents) == first
    assert len({first, fingerprint("b", other), fingerprint("c", documents, cased)}) == 3
    assert open_shards(folder).split("valid").fingerprint() != first


def test_verify_finds_what_opening_does_not_find(folder):
    assert verify(folder) == []
    with h5py.File(folder / "train-00000.h5", "r+") as shard:
        shard["ids"][0, 5] ^= 1
    open_shards(folder)
    (folder / "valid-00000.h5").unlink()
    changed, missing = verify(folder)
    place = f"{folder}/train-00000.h5"
    assert changed.startswith(f"{place}: the content has changed since it was written; ")
    assert "tupelo data repair" in changed and "valid-00000.h5: no such file; name the" in missing


def assert_refused(folder, message):
    with pytest.raises(ShardError, match=message) as refused:
        open_shards(folder)
    assert "\n" not in str(refused.value)
    assert verify(folder)[0] == str(refused.value)


def cut_short(folder):
    file = folder / "train-00001.h5"
    file.write_bytes(file.read_bytes()[:-100])


def other_rows(folder):
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"rows_per_shard": ', '"rows_per_shard": 1'))


def overwritten(folder):
    file = folder / "valid-00000.h5"
    file.write_bytes(b"x" * file.stat().st_size)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_short, r"train-00001\.h5: \d+ bytes instead of \d+; .* repair"),
        (lambda folder: (folder / "valid-00000.h5").unlink(), r"valid-00000\.h5: no such file"),
        (overwritten, r"valid-00000\.h5: not a readable shard"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "not the tokenizer that"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"\.json: no such file .* repair"),
        (other_rows, "the files hold another number of rows; build the folder again"),
        (shutil.rmtree, r"manifest\.json: no such file or directory; build the shards"),
    ],
)
def test_a_folder_that_is_damaged_is_refused(folder, damage, message):
    damage(folder)
    assert_refused(folder, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"JSON: Invalid JSON: .*; build the folder again"),
        (b'{"format": "other", "version": 2}', "format: Input should be 'tupelo-shards'"),
        (b'{"format": "tupelo-shards", "version": 1}', "version: Input should be 2"),
        (b'{"format": "tupelo-shards", "version": 2}', "sequence_length: Field required"),
    ],
)
def test_a_damaged_manifest_or_one_of_another_format_is_an_error(folder, content, message):
    (folder / "manifest.json").write_bytes(content)
    assert_refused(folder, r"manifest\.json: " + message)


def test_a_folder_without_held_out_sequences_is_an_error_where_they_are_read(tmp_path):
    folder = write_folder(tmp_path / "shards", {"train": random_documents(20)})
    with pytest.raises(ShardError, match="holds no valid sequences"):
        open_shards(folder).split("valid")
