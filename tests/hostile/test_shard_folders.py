"""Shard folders that are damaged or malicious."""

import json
import shutil

import h5py
import numpy as np
import pytest

from data_prep.commands.show import shown_sequences
from data_prep.commands.verify import verify
from data_prep.shards.format import open_shards
from data_prep.shards.manifest import ShardError, read_manifest, sha256_of, write_manifest
from data_prep.tokenizer.describe import TokenizerError, read_tokenizer, word_starts
from tests.data_prep.small_shards import random_documents, sequences_of, write_folder
from tests.hostile.mutations import mutated_bytes, mutated_json
from tests.hostile.property import check_file, check_message


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sound shard folder."""
    folder = tmp_path_factory.mktemp("whole") / "shards"
    write_folder(
        folder,
        {
            "train": random_documents(30, seed=1),
            "valid": random_documents(8, seed=2),
        },
    )
    return folder


@pytest.fixture(scope="module")
def folder(whole, tmp_path_factory):
    """A copy of it to damage."""
    return shutil.copytree(whole, tmp_path_factory.mktemp("broken") / "shards")


def restore(whole, folder):
    for file in whole.iterdir():
        shutil.copyfile(file, folder / file.name)


def first_shard(folder):
    return folder / read_manifest(folder).splits["train"].shards[0].file


def with_matching_hashes(folder):
    """Update sizes and hashes in the manifest, as whoever damages the files on purpose would."""
    content = json.loads((folder / "manifest.json").read_text())
    for split in content["splits"].values():
        for record in split["shards"]:
            file = folder / record["file"]
            record.update(bytes=file.stat().st_size, sha256=sha256_of(file))
    (folder / "manifest.json").write_text(json.dumps(content))


def rows_of_everything(folder):
    for problem in verify(folder):
        check_message(problem, [str(folder)])
    shards = open_shards(folder)
    return {name: sequences_of(shards, name).tolist() for name in shards.manifest.splits}


def test_any_damage_to_a_shard_is_detected(whole, folder):
    restore(whole, folder)
    file, sound = first_shard(folder), first_shard(whole).read_bytes()

    def read():
        assert bool(verify(folder)) == (file.read_bytes() != sound)
        rows_of_everything(folder)

    check_file(file, mutated_bytes, read, ShardError, naming=[file.name])


def test_any_tokenizer_of_a_shard_folder_is_used_or_refused(whole, folder):
    restore(whole, folder)
    manifest, file = read_manifest(whole), folder / "tokenizer.json"

    def use():
        record = manifest.tokenizer.model_copy(update={"sha256": sha256_of(file)})
        write_manifest(folder, manifest.model_copy(update={"tokenizer": record}))
        word_starts(read_tokenizer(file))
        return list(shown_sequences(open_shards(folder), "train", count=1))

    check_file(file, mutated_json, use, (ShardError, TokenizerError), naming=["tokenizer"])


def rewritten(whole, to, change):
    """Return a copy of a shard folder whose first file was changed through HDF5."""
    folder = shutil.copytree(whole, to)
    with h5py.File(first_shard(folder), "r+") as content:
        rows = content["ids"][()]
        del content["ids"]
        change(content, rows)
    with_matching_hashes(folder)
    return folder


def test_ids_beyond_the_vocabulary_are_refused_where_they_are_read(whole, tmp_path):
    def write(content, rows):
        rows[3, 5] = read_manifest(whole).tokenizer.vocabulary_size
        content["ids"] = rows

    shards = open_shards(rewritten(whole, tmp_path / "shards", write))
    train = shards.split("train")
    assert train.read(np.arange(3)).shape == (3, 16)
    with pytest.raises(ShardError, match=r"train-00000\.h5: holds the id \d+, beyond"):
        train.read(np.arange(5))
