"""Shard folders that are damaged or malicious."""

import shutil

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
    splits = {"train": random_documents(30, seed=1), "valid": random_documents(8, seed=2)}
    write_folder(folder, splits)
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
