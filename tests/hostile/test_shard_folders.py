"""Shard folders that are damaged or malicious."""

import json
import os
import shutil

import h5py
import numpy as np
import pytest
from hypothesis import given

from data_prep.shards.format import open_shards, read_header
from data_prep.shards.manifest import Manifest, ShardError, read_manifest, sha256_of, write_manifest
from data_prep.tokenizer.describe import TokenizerError
from data_prep.tools.external_shards import read_samples
from data_prep.tools.show import shown_rows
from data_prep.tools.verify import verify
from tests.data_prep.small_shards import random_documents, rows_of, write_folder
from tests.hostile.mutations import mutated_bytes, mutated_json
from tests.hostile.property import check_message, few, result_or_clear_error


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
    """Update sizes and hashes in the manifest, as an attacker would."""
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


def test_any_damage_to_a_shard_is_detected(whole, folder):
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


def test_no_damaged_header_with_a_matching_manifest_crashes_the_reader(whole, folder):
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
        result_or_clear_error(
            lambda: show(folder), (ShardError, TokenizerError), naming=["tokenizer"]
        )

    check()


def show(folder):
    shards = open_shards(folder)
    return [
        line
        for masking in ("tokens", "words")
        for line in shown_rows(shards, "train", count=3, seed=0, masking=masking)
    ]


def rewritten(whole, to, change):
    """Return a copy of a shard folder whose first file was changed through HDF5."""
    folder = shutil.copytree(whole, to)
    with h5py.File(first_shard(folder), "r+") as content:
        rows = content["ids"][()]
        del content["ids"]
        change(content, rows)
    with_matching_hashes(folder)
    return folder


@pytest.fixture
def secret(tmp_path):
    """A file outside the folder that holds rows of the right format."""
    file = tmp_path / "secret.h5"
    with h5py.File(file, "w") as content:
        content["ids"] = np.full((17, 16), 7, np.uint16)
    return file


def external_link(content, rows, secret):
    content["ids"] = h5py.ExternalLink(str(secret), "ids")


def soft_link(content, rows, secret):
    content["rows"] = rows
    content["ids"] = h5py.SoftLink("/rows")


def virtual(content, rows, secret):
    layout = h5py.VirtualLayout(rows.shape, rows.dtype)
    layout[:] = h5py.VirtualSource(str(secret), "ids", rows.shape, rows.dtype)
    content.create_virtual_dataset("ids", layout)


def external_storage(content, rows, secret):
    external = [(str(secret), 0, h5py.h5f.UNLIMITED)]
    content.create_dataset("ids", rows.shape, rows.dtype, external=external)


def compressed(content, rows, secret):
    content.create_dataset("ids", data=rows, compression="gzip")


def group(content, rows, secret):
    content.create_group("ids")


def endless(content, rows, secret):
    content.create_dataset("ids", (10**9, 16), rows.dtype, maxshape=(10**9, 16), chunks=(1, 16))


def other_endian(content, rows, secret):
    content["ids"] = rows.astype(">u2")


def invalid_attribute(content, rows, secret):
    content["ids"] = rows
    content.attrs.modify("tokenizer_sha256", "z" * 64)


def scalar(content, rows, secret):
    content["ids"] = 5


def nothing(content, rows, secret):
    content["ids"] = h5py.Empty("u2")


TRICKS = (
    *(external_link, soft_link, virtual, external_storage, compressed, group, endless),
    *(other_endian, invalid_attribute, scalar, nothing),
)


@pytest.mark.parametrize("trick", TRICKS)
def test_a_shard_that_refers_to_other_files_or_holds_no_rows_is_refused(
    whole, tmp_path, secret, trick
):
    folder = rewritten(
        whole, tmp_path / "shards", lambda content, rows: trick(content, rows, secret)
    )
    file = first_shard(folder)
    with pytest.raises(ShardError, match="not a readable shard|instead of contiguous"):
        open_shards(folder)
    assert any(str(file) in problem for problem in verify(folder))


@pytest.mark.parametrize(
    "name",
    [
        *("../secret.h5", "/etc/passwd", "..", ".", "", "a/b.h5", "..\\secret.h5", "a\\b"),
        *("a\0b", "x" * 300, "two\nlines.h5", "\x1b[31m.h5"),
    ],
)
def test_a_manifest_names_files_of_its_folder_only(whole, tmp_path, name):
    folder = shutil.copytree(whole, tmp_path / "shards")
    content = json.loads((folder / "manifest.json").read_text())
    content["splits"]["train"]["shards"][1]["file"] = name
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ShardError, match="not the name of a file in this folder") as caught:
        open_shards(folder)
    check_message(str(caught.value), [str(folder)])


def test_a_link_out_of_the_folder_is_not_followed(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "shards")
    file = first_shard(folder)
    shutil.move(file, tmp_path / "elsewhere.h5")
    file.symlink_to(tmp_path / "elsewhere.h5")
    for read in (open_shards, lambda folder: open_shards(folder).split("train").rows(np.arange(2))):
        with pytest.raises(ShardError, match="a link out of the folder"):
            read(folder)
    file.unlink()
    (folder / "copy.h5").symlink_to(folder / "train-00001.h5")
    file.symlink_to(folder / "copy.h5")
    with pytest.raises(ShardError, match="content has changed|another|holds"):
        raise ShardError(verify(folder)[0])


@pytest.mark.parametrize("name", ["manifest.json", "tokenizer.json", "train-00000.h5"])
def test_a_pipe_in_place_of_a_file_is_refused(whole, tmp_path, name):
    folder = shutil.copytree(whole, tmp_path / "shards")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert (
        result_or_clear_error(lambda: open_shards(folder), ShardError, naming=[str(folder / name)])
        is None
    )
    assert verify(folder)


def test_ids_beyond_the_vocabulary_are_refused_where_they_are_read(whole, tmp_path):
    def write(content, rows):
        rows[3, 5] = read_manifest(whole).tokenizer.vocabulary_size
        content["ids"] = rows

    shards = open_shards(rewritten(whole, tmp_path / "shards", write))
    train = shards.split("train")
    assert train.rows(np.arange(3)).shape == (3, 16)
    with pytest.raises(ShardError, match=r"train-00000\.h5: holds the id \d+, beyond"):
        train.rows(np.arange(5))
    with pytest.raises(ShardError, match="beyond the vocabulary"):
        list(train.read_in_order([0], max_rows=8))


def test_a_language_that_is_a_path_or_code_is_refused(whole):
    record = json.loads((whole / "manifest.json").read_text())
    for moses in ("../../x", 'en"); import os; ("', "EN", ""):
        record["tokenizer"]["moses"] = moses
        with pytest.raises(ValueError, match="not the code of a language"):
            Manifest.model_validate_json(json.dumps(record))


@pytest.mark.parametrize("trick", [external_link, soft_link, virtual, external_storage, group])
def test_external_shards_that_refer_to_other_files_are_refused(tmp_path, secret, trick):
    file = tmp_path / "external.h5"
    with h5py.File(file, "w") as content:
        trick(content, np.full((17, 16), 7, np.uint16), secret)
        content.move("ids", "input_ids")
        for name in ("masked_lm_positions", "masked_lm_ids"):
            content[name] = np.zeros((17, 3), np.int32)
    with pytest.raises(ShardError, match=r"external\.h5"):
        list(read_samples(file, sep_id=3))


def external(file, **options):
    """Write samples that are all padding, in one chunk, as large as an honest file may have."""
    with h5py.File(file, "w") as content:
        for name in ("input_ids", "masked_lm_positions", "masked_lm_ids"):
            filling = np.zeros((50_000, 80), np.int32)
            content.create_dataset(name, data=filling, chunks=filling.shape, **options)
    return file


def deflated_twice(file):
    """Write the same with the ids in two layers of deflate, of which h5py offers one."""
    external(file)
    with h5py.File(file, "r+") as content:
        del content["input_ids"]
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk((50_000, 80))
        creation.set_deflate(9)
        creation.set_deflate(9)
        shape = h5py.h5s.create_simple((50_000, 80))
        ids = h5py.h5d.create(content.id, b"input_ids", h5py.h5t.NATIVE_INT32, shape, creation)
        ids.write(h5py.h5s.ALL, h5py.h5s.ALL, np.zeros((50_000, 80), np.int32))
    return file


def test_what_deflate_can_store_is_read_and_what_swells_more_is_refused(tmp_path):
    honest = external(tmp_path / "honest.h5", compression="gzip", compression_opts=9)
    with h5py.File(honest) as content:
        stored = content["input_ids"].id.get_storage_size()
        assert 1000 < content["input_ids"].nbytes / stored < 1032
    assert sum(len(samples.ids) for samples in read_samples(honest, sep_id=3)) == 50_000
    with pytest.raises(ShardError, match=r"bomb\.h5: .*input_ids declares 16,000,000 bytes and st"):
        list(read_samples(deflated_twice(tmp_path / "bomb.h5"), sep_id=3))
