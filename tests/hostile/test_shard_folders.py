"""Shard folders that were damaged, or made to harm."""

import shutil

import h5py
import numpy as np
import pytest
from hypothesis import given

from data_prep.manifest import ShardError, read_manifest, sha256_of, write_manifest
from data_prep.row_statistics import count_rows, statistics_of
from data_prep.shards import open_shards, read_header
from data_prep.show import shown_rows
from data_prep.tokenizer import TokenizerError, described_tokenizer
from data_prep.verify import verify
from tests.data_prep.small_shards import random_documents, rows_of, write_folder
from tests.hostile.mutations import mutated_bytes, mutated_json
from tests.hostile.property import check_message, few, result_or_clear_error


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A shard folder that is as it should be."""
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
    """A copy of it to be broken."""
    return shutil.copytree(whole, tmp_path_factory.mktemp("broken") / "shards")


def restore(whole, folder):
    for file in whole.iterdir():
        shutil.copyfile(file, folder / file.name)


def first_shard(folder):
    return folder / read_manifest(folder).splits["train"].shards[0].file


def with_matching_hashes(folder):
    """Let the manifest describe the files as they are: their maker knows how to count."""
    manifest = read_manifest(folder)
    splits = {
        name: split.model_copy(
            update={
                "shards": tuple(
                    record.model_copy(
                        update={
                            "bytes": (folder / record.file).stat().st_size,
                            "sha256": sha256_of(folder / record.file),
                        }
                    )
                    for record in split.shards
                )
            }
        )
        for name, split in manifest.splits.items()
    }
    write_manifest(folder, manifest.model_copy(update={"splits": splits}))


def rows_of_everything(folder):
    shards = open_shards(folder)
    return {name: rows_of(shards, name).tolist() for name in shards.manifest.splits}


def test_any_manifest_gives_the_rows_or_a_clear_error(whole, folder):
    restore(whole, folder)
    content = (whole / "manifest.json").read_bytes()
    every_row = [row for rows in rows_of_everything(whole).values() for row in rows]

    @few(120)
    @given(mutated_json(content))
    def check(mutated):
        (folder / "manifest.json").write_bytes(mutated)
        found = result_or_clear_error(
            lambda: rows_of_everything(folder), ShardError, naming=[str(folder)]
        )
        assert all(row in every_row for split in (found or {}).values() for row in split)
        for problem in verify(folder):
            check_message(problem, [str(folder)])

    check()


def test_any_damage_to_a_shard_is_noticed(whole, folder):
    restore(whole, folder)
    file = first_shard(whole)

    @few(120)
    @given(mutated_bytes(file.read_bytes()))
    def check(mutated):
        (folder / file.name).write_bytes(mutated)
        result_or_clear_error(lambda: rows_of_everything(folder), ShardError, naming=[file.name])
        problems = verify(folder)
        assert bool(problems) == (mutated != file.read_bytes())
        for problem in problems:
            check_message(problem, [str(folder)])

    check()


def test_no_shard_of_a_stranger_who_counts_right_crashes_the_reader(whole, folder):
    file = first_shard(whole)
    header = file.read_bytes()[: read_header(file).offset]

    @few(120)
    @given(mutated_bytes(header))
    def check(mutated):
        restore(whole, folder)
        (folder / file.name).write_bytes(mutated + file.read_bytes()[len(header) :])
        with_matching_hashes(folder)
        found = result_or_clear_error(
            lambda: rows_of_everything(folder), ShardError, naming=[file.name]
        )
        size = read_manifest(folder).tokenizer.vocabulary_size
        assert found is None or np.max(found["train"]) < size

    check()


def test_any_tokenizer_of_a_shard_folder_is_used_or_refused(whole, folder):
    restore(whole, folder)
    content = (whole / "tokenizer.json").read_bytes()
    manifest = read_manifest(whole)

    @few(60)
    @given(mutated_json(content))
    def check(mutated):
        (folder / "tokenizer.json").write_bytes(mutated)
        digest = sha256_of(folder / "tokenizer.json")
        record = manifest.tokenizer.model_copy(update={"sha256": digest})
        write_manifest(folder, manifest.model_copy(update={"tokenizer": record}))
        for shard in (r for split in manifest.splits.values() for r in split.shards):
            with h5py.File(folder / shard.file, "a") as content:
                content.attrs.modify("tokenizer_sha256", digest)
        with_matching_hashes(folder)
        for look in (show, count):
            result_or_clear_error(
                lambda look=look: look(folder), (ShardError, TokenizerError), naming=["tokenizer"]
            )

    check()


def show(folder):
    shards = open_shards(folder)
    return [
        line
        for masking in ("tokens", "words")
        for line in shown_rows(shards, "train", count=3, seed=0, masking=masking)
    ]


def count(folder):
    shards = open_shards(folder)
    tokenizer = described_tokenizer(shards.tokenizer_path, shards.manifest.tokenizer)
    return [
        statistics_of(split, shards, name, tokenizer) for name, split in count_rows(shards).items()
    ]
