import pytest
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing

from data_prep.shards.format import open_shards
from data_prep.shards.manifest import ShardError, read_manifest, write_manifest
from data_prep.sources.source import CorpusError
from data_prep.tools.mix import mix, open_ingredient
from data_prep.tools.verify import verify
from tests.data_prep.small_shards import (
    SPECIAL,
    cut_at_separators,
    random_documents,
    stream_of,
    tokens_of,
    word_tokenizer,
    write_folder,
)


def folder_of(place, seed, **options):
    splits = {
        "train": random_documents(60, seed=seed),
        "valid": random_documents(20, seed=seed + 100),
    }
    return write_folder(place, splits, **options)


@pytest.fixture
def folders(tmp_path):
    return [folder_of(tmp_path / "a", 0), folder_of(tmp_path / "b", 1, sequence_length=32)]


def stored(folder, name):
    return cut_at_separators(tokens_of(open_shards(folder), name))


def mixed(texts, to, **options):
    return mix([open_ingredient(str(text)) for text in texts], to, **options)


def assert_rows_hold(folder, name, documents):
    stream, found = stream_of(documents), tokens_of(open_shards(folder), name)
    split = open_shards(folder).manifest.splits[name]
    per_row = open_shards(folder).manifest.sequence_length - 2
    assert found == stream[: len(found)]
    assert len(stream) - len(found) < per_row * (1 + split.rows_dropped)
    assert split.documents == len(documents)
    assert split.tokens == sum(map(len, documents))


def test_without_weights_every_document_is_taken_once(folders, tmp_path):
    manifest = mixed(folders, tmp_path / "new")
    for name in ("train", "valid"):
        documents = [text for folder in folders for text in stored(folder, name)]
        assert_rows_hold(tmp_path / "new", name, documents)
    assert manifest.sequence_length == 16
    assert verify(tmp_path / "new") == []
    assert {file.suffix for file in (tmp_path / "new").iterdir()} == {".h5", ".json"}


def test_weights_are_passes_that_follow_one_another_and_the_valid_documents_stay(folders, tmp_path):
    a, b = folders
    mixed([f"{a}:weight=2.5", b], tmp_path / "new", sequence_length=24)
    first, other = stored(a, "train"), stored(b, "train")
    assert_rows_hold(tmp_path / "new", "train", first + other + first + first[::2])
    assert_rows_hold(tmp_path / "new", "valid", stored(a, "valid") + stored(b, "valid"))
    assert open_shards(tmp_path / "new").manifest.sequence_length == 24


def test_a_weight_below_1_takes_that_share_of_both_splits(folders, tmp_path):
    a, b = folders
    mixed([f"{a}:weight=0.3", b], tmp_path / "new")
    for name in ("train", "valid"):
        some = [text for i, text in enumerate(stored(a, name)) if i * 3 % 10 < 3]
        assert_rows_hold(tmp_path / "new", name, some + stored(b, name))


def test_words_stay_known_only_where_whole_passes_are_taken(tmp_path):
    a, b = folder_of(tmp_path / "a", 0, counted=10), folder_of(tmp_path / "b", 1, counted=7)
    whole = mixed([f"{a}:weight=2", b], tmp_path / "whole").splits["train"]
    assert (whole.words, whole.sentences) == (27, 27)
    part = mixed([f"{a}:weight=2.5", b], tmp_path / "part").splits["train"]
    assert (part.words, part.sentences) == (None, None)


def test_the_manifest_records_what_was_mixed(folders, tmp_path):
    a, b = folders
    manifest = mixed([f"{a}:weight=2.5", b], tmp_path / "new")
    assert manifest.history == (f"mix: {a} x 2.5, {b} x 1",)
    assert manifest.settings["weights"] == [2.5, 1.0]
    assert (manifest.source, manifest.licence) == ("a test", "none")


def test_folders_of_other_tokenizers_are_refused_by_name(folders, tmp_path):
    other = folder_of(tmp_path / "other", 2, tokenizer=word_tokenizer(101))
    with pytest.raises(ShardError, match=f"{folders[0]} and {other} have different tokenizers"):
        mixed([*folders, other], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_tokenizer_that_was_trained_for_one_folder_and_loaded_for_the_other_is_the_same(
    folders, tmp_path
):
    manifest = read_manifest(folders[1])
    loaded = manifest.tokenizer.model_copy(update={"kind": "loaded"})
    write_manifest(folders[1], manifest.model_copy(update={"tokenizer": loaded}))
    mixed(folders, tmp_path / "new")
    assert verify(tmp_path / "new") == []


def test_a_tokenizer_that_frames_rows_in_another_way_is_the_same(folders, tmp_path):
    """As in an export: another post-processor, and a mask that takes the space before it."""
    tokenizer = word_tokenizer()
    specials = [AddedToken(f"[{name.upper()}]", special=True, lstrip=True) for name in SPECIAL]
    tokenizer.add_special_tokens(specials)
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    other = folder_of(tmp_path / "other", 2, tokenizer=tokenizer)
    hashes = {read_manifest(folder).tokenizer.sha256 for folder in (folders[0], other)}
    assert len(hashes) == 2
    mixed([folders[0], other], tmp_path / "new")
    assert verify(tmp_path / "new") == []


def test_words_cut_by_moses_in_one_folder_only_are_refused_by_that_reason(folders, tmp_path):
    manifest = read_manifest(folders[1])
    moses = manifest.tokenizer.model_copy(update={"moses": "en"})
    write_manifest(folders[1], manifest.model_copy(update={"tokenizer": moses}))
    with pytest.raises(ShardError, match=r"differ in .* Moses .*\(no Moses, en\)"):
        mixed(folders, tmp_path / "new")


@pytest.mark.parametrize("weight", ["0", "9e-7", "-1", "x", "nan", "inf", "1001", ""])
def test_an_invalid_weight_is_refused(folders, weight):
    with pytest.raises(CorpusError, match=f"weight={weight} is not a number from 0.000001 to 1000"):
        open_ingredient(f"{folders[0]}:weight={weight}")


def test_a_folder_without_held_out_rows_can_be_mixed(tmp_path):
    train = {"train": random_documents(60)}
    folders = [write_folder(tmp_path / name, train) for name in ("a", "b")]
    manifest = mixed(folders, tmp_path / "new")
    assert set(manifest.splits) == {"train"}
