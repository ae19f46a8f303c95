import shutil
import sys
from types import SimpleNamespace

import pytest

from data_prep.commands.repair import repair
from data_prep.commands.verify import verify
from data_prep.pipeline.build import build
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import ShardError, read_manifest, write_manifest
from data_prep.tokenizer.cleaning import own_normalizer
from data_prep.tokenizer.describe import read_tokenizer
from tests.data_prep.small_shards import contents, random_documents, write_folder


@pytest.fixture
def folder(tmp_path):
    documents = random_documents(60)
    folder = tmp_path / "shards"
    write_folder(folder, {"train": documents, "valid": documents[:30]}, counted=7)
    settings = BuildSettings().model_dump(mode="json")
    write_manifest(folder, read_manifest(folder).model_copy(update={"settings": settings}))
    return folder


def damage(folder, *names):
    for name in names:
        file = folder / name
        file.write_bytes(file.read_bytes()[:-1] + b"x")


@pytest.fixture
def builder(folder, monkeypatch):
    """Replaces the build: it "builds" a copy of the folder as it is now."""
    source = shutil.copytree(folder, folder.parent / "source")

    def build(settings, target, *, workers):
        usual = {"tokenizer": "wordpiece"}
        assert settings.model_copy(update=usual) == BuildSettings(damaged_files="skip")
        shutil.copytree(source, target)
        return read_manifest(target)

    monkeypatch.setitem(sys.modules, "data_prep.pipeline.build", SimpleNamespace(build=build))
    return source


def test_damaged_and_missing_files_are_restored(folder, builder):
    before = contents(folder)
    damage(folder, "train-00001.h5", "tokenizer.json")
    (folder / "valid-00000.h5").unlink()
    restored = repair(folder)
    assert restored == ["train-00001.h5", "valid-00000.h5", "tokenizer.json"]
    history = read_manifest(folder).history
    assert history == ("repair: built train-00001.h5, valid-00000.h5, tokenizer.json again",)
    after = contents(folder)
    assert before.pop("manifest.json") != after.pop("manifest.json")
    assert after == before
    assert verify(folder) == []
    assert not folder.with_name("shards.rebuilt").exists()


def test_a_build_of_text_that_has_changed_changes_nothing(folder, builder):
    shutil.rmtree(builder)
    write_folder(builder, {"train": random_documents(60, seed=1), "valid": random_documents(30)})
    damage(folder, "train-00001.h5")
    before = contents(folder)
    with pytest.raises(ShardError, match=r"have changed: \d+ of \d+ files .* nothing was changed"):
        repair(folder)
    assert contents(folder) == before
    assert verify(folder.with_name("shards.rebuilt")) == []


def test_what_was_not_built_cannot_be_built_again(folder, builder):
    manifest = read_manifest(folder)
    write_manifest(folder, manifest.model_copy(update={"settings": {"command": "mix"}}))
    (folder / "train-00001.h5").unlink()
    with pytest.raises(ShardError, match="made by mix, not by build: it cannot be built again"):
        repair(folder)


def test_shards_of_an_earlier_tokenizer_are_repaired_with_it(tmp_path):
    """It does not clean text; today a trained one would."""
    text = "".join(f"The text of number {n} says {n * 7}.\n\n" for n in range(60))
    (tmp_path / "text.txt").write_text(text)
    settings = BuildSettings(
        corpus=(str(tmp_path / "text.txt"),), sequence_length=8, vocabulary_size=200
    )
    build(settings, tmp_path / "today", workers=1)
    old = read_tokenizer(tmp_path / "today" / "tokenizer.json")
    old.normalizer = own_normalizer(old)
    old.save(str(tmp_path / "today" / "tokenizer.json"))
    loaded = settings.model_copy(update={"tokenizer": str(tmp_path / "today")})
    manifest = build(loaded, tmp_path / "old", workers=1)
    said = {"settings": settings.model_dump(mode="json")}
    write_manifest(tmp_path / "old", manifest.model_copy(update=said))
    damage(tmp_path / "old", "train-00000.h5")
    assert repair(tmp_path / "old", workers=1) == ["train-00000.h5"]
    assert verify(tmp_path / "old") == []
