import shutil
import sys
import types

import pytest

from data_prep.settings import BuildSettings
from data_prep.shards.format import open_shards
from data_prep.shards.manifest import ShardError, read_manifest, write_manifest
from data_prep.tools.repair import rebuild, repair
from data_prep.tools.verify import verify
from tests.data_prep.small_shards import random_documents, rows_of, write_folder


@pytest.fixture
def folder(tmp_path):
    documents = random_documents(60)
    folder = tmp_path / "shards"
    write_folder(folder, {"train": documents, "valid": documents[:30]}, counted=7)
    settings = BuildSettings().model_dump(mode="json")
    write_manifest(folder, read_manifest(folder).model_copy(update={"settings": settings}))
    return folder


def content_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def damage(folder, *names):
    for name in names:
        file = folder / name
        file.write_bytes(file.read_bytes()[:-1] + b"x")


def test_what_is_broken_is_dropped_and_the_rest_stays_as_it_is(folder):
    before = open_shards(folder)
    rows, split = rows_of(before, "train"), before.manifest.splits["train"]
    damage(folder, "train-00001.h5")
    content = content_of(folder)
    repair(folder)
    assert verify(folder) == []
    after = open_shards(folder)
    per_shard = split.rows_per_shard
    assert (rows_of(after, "train")[:per_shard] == rows[:per_shard]).all()
    assert (rows_of(after, "train")[per_shard:] == rows[2 * per_shard :]).all()
    assert after.manifest.splits["valid"] == before.manifest.splits["valid"]
    assert after.manifest.splits["train"].words is None
    content.pop("manifest.json")
    assert content.items() <= content_of(folder).items()  # also the broken file: nothing is deleted


def test_what_is_lost_is_told_exactly(folder):
    split = read_manifest(folder).splits["train"]
    damage(folder, "train-00001.h5")
    (folder / "train-00003.h5").unlink()
    done = repair(folder)
    assert len(done.problems) == 2
    rows = 2 * split.rows_per_shard
    (loss,) = done.losses
    assert loss == (
        f"train: train-00001.h5, train-00003.h5 with {rows} rows, {rows * 14:,} tokens, "
        f"{2 / len(split.shards):.2%} of the split"
    )
    assert read_manifest(folder).history == (f"repair: dropped {loss}",)


def test_nothing_is_done_where_nothing_is_broken(folder):
    before = content_of(folder)
    assert repair(folder) == ((), ())
    assert content_of(folder) == before


def test_a_dry_run_tells_the_same_and_changes_nothing(folder):
    damage(folder, "train-00001.h5")
    before = content_of(folder)
    told = repair(folder, dry_run=True)
    assert content_of(folder) == before
    assert told == repair(folder)


def test_contradicting_row_counts_are_put_right(folder):
    manifest = read_manifest(folder)
    wrong = manifest.splits["train"].model_copy(update={"rows": 1, "rows_per_shard": 3})
    splits = manifest.splits | {"train": wrong}
    write_manifest(folder, manifest.model_copy(update={"splits": splits}))
    assert len(repair(folder).problems) == 1
    assert read_manifest(folder) == manifest


def test_a_split_is_not_dropped_whole(folder):
    names = [record.file for record in read_manifest(folder).splits["valid"].shards]
    damage(folder, *names)
    before = content_of(folder)
    with pytest.raises(ShardError, match=r"every file of valid is broken.*use repair --rebuild"):
        repair(folder)
    assert content_of(folder) == before


def test_without_tokenizer_or_manifest_dropping_does_not_help(folder):
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ShardError, match="dropping files does not help: use repair --rebuild"):
        repair(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(ShardError, match="not JSON.*build the folder again"):
        repair(folder)


@pytest.fixture
def builder(folder, monkeypatch):
    """Takes the place of the build: it "builds" a copy of the folder as it is now."""
    source = shutil.copytree(folder, folder.parent / "source")

    def build(settings, target, *, progress, workers):
        assert settings == BuildSettings()
        shutil.copytree(source, target)
        return read_manifest(target)

    module = types.ModuleType("data_prep.pipeline.build")
    module.build = build
    monkeypatch.setitem(sys.modules, "data_prep.pipeline.build", module)
    return source


def test_building_again_restores_what_was_there(folder, builder):
    before = content_of(folder)
    damage(folder, "train-00001.h5", "tokenizer.json")
    (folder / "valid-00000.h5").unlink()
    done = rebuild(folder, progress=False)
    assert len(done.problems) >= 2
    history = read_manifest(folder).history
    assert history == ("repair: built train-00001.h5, valid-00000.h5, tokenizer.json again",)
    after = content_of(folder)
    assert before.pop("manifest.json") != after.pop("manifest.json")
    assert after == before
    assert verify(folder) == []
    assert not folder.with_name("shards.rebuilt").exists()


def test_building_again_restores_what_an_earlier_repair_dropped(folder, builder):
    manifest = read_manifest(folder)
    (folder / "train-00001.h5").unlink()
    repair(folder)
    rebuild(folder, progress=False)
    assert read_manifest(folder).splits == manifest.splits
    assert len(read_manifest(folder).history) == 2
    assert verify(folder) == []


def test_a_build_of_text_that_has_changed_changes_nothing(folder, builder):
    shutil.rmtree(builder)
    write_folder(builder, {"train": random_documents(60, seed=1), "valid": random_documents(30)})
    damage(folder, "train-00001.h5")
    before = content_of(folder)
    with pytest.raises(ShardError, match=r"have changed: \d+ of \d+ files .* nothing was changed"):
        rebuild(folder, progress=False)
    assert content_of(folder) == before
    assert verify(folder.with_name("shards.rebuilt")) == []


def test_what_was_not_built_cannot_be_built_again(folder, builder):
    manifest = read_manifest(folder)
    write_manifest(folder, manifest.model_copy(update={"settings": {"command": "mix"}}))
    (folder / "train-00001.h5").unlink()
    with pytest.raises(ShardError, match="was made by mix, not by build; give that command again"):
        rebuild(folder, progress=False)
