import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from data_prep.__main__ import main
from data_prep.build import BuildSettings, build
from data_prep.corpora import CorpusError, open_corpus
from data_prep.packing import unpack
from data_prep.shards import ShardError, open_shards, verify


def stream_of(shards, name):
    split = shards.split(name)
    return unpack(split.rows(np.arange(split.num_rows))).tolist()


def small(file, text, **changes):
    file.write_text(text)
    return BuildSettings(corpus=(str(file),), sequence_length=8, vocabulary_size=200, **changes)


def test_a_built_folder_is_complete_and_nothing_else(built):
    manifest = open_shards(built).manifest
    shards = {shard.file for split in manifest.splits.values() for shard in split.shards}
    assert {file.name for file in built.iterdir()} == {"manifest.json", "tokenizer.json"} | shards
    assert [file.name for file in built.parent.iterdir()] == ["shards"]
    assert len(manifest.splits["train"].shards) > 1
    assert verify(built) == []


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_building_twice_gives_the_same_bytes(settings, tmp_path, kind):
    settings = settings.model_copy(update={"tokenizer": kind})
    for name in ("first", "second"):
        build(settings, tmp_path / name, progress=False)
    files = sorted(file.name for file in (tmp_path / "first").iterdir())
    assert files == sorted(file.name for file in (tmp_path / "second").iterdir())
    for name in files:
        first, second = (tmp_path / folder / name for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes(), name


def test_rows_are_the_encoded_documents_in_order(built, corpus):
    shards = open_shards(built)
    tokenizer = Tokenizer.from_file(str(shards.tokenizer_path))
    documents = list(open_corpus(str(corpus)).documents)
    for name, chosen in {
        "train": [document for i, document in enumerate(documents) if i % 10],
        "valid": documents[::10],
    }.items():
        expected = []
        for document in chosen:
            ids = tokenizer.encode(" ".join(document), add_special_tokens=False).ids
            expected += [3, *ids] if expected else ids
        found = stream_of(shards, name)
        assert found == expected[: len(found)]
        record = shards.manifest.splits[name]
        assert record.documents == len(chosen)
        assert record.words == sum(len(p.split()) for document in chosen for p in document)
        assert record.sentences == sum(p.count(".") for document in chosen for p in document)
        assert record.tokens == len(expected) - (len(chosen) - 1)
        assert record.rows + record.rows_dropped == len(expected) // 14


def test_the_manifest_records_settings_and_source(built, settings, corpus):
    manifest = open_shards(built).manifest
    assert BuildSettings.model_validate(manifest.settings) == settings
    assert str(corpus) in manifest.source
    assert manifest.licence
    assert manifest.tokenizer.special_tokens == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert json.loads((built / "manifest.json").read_text())["format"] == "tupelo-shards"


def test_text_that_names_special_tokens_holds_none(tmp_path):
    settings = small(tmp_path / "text.txt", "The [MASK] and the [PAD] token here.\n\n" * 20)
    build(settings, tmp_path / "shards", progress=False)
    assert not {0, 1, 2, 4} & set(stream_of(open_shards(tmp_path / "shards"), "train"))


def test_max_words_bounds_what_is_read(settings, tmp_path):
    limited = settings.model_copy(update={"max_words": 1000})
    splits = build(limited, tmp_path / "shards", progress=False).splits
    num_words = sum(split.words for split in splits.values())
    assert 1000 <= num_words < 1000 + 60  # the longest paragraph has 60 words


def test_the_tokenizer_does_not_see_held_out_documents(tmp_path):
    settings = small(tmp_path / "text.txt", "ж " * 50 + "\n\n" + "plain words here\n\n" * 30)
    build(settings, tmp_path / "shards", progress=False)
    vocabulary = json.loads((tmp_path / "shards" / "tokenizer.json").read_text())["model"]["vocab"]
    assert "ж" not in vocabulary
    assert "words" in vocabulary


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no text at all"),
        ("\n \n\n", "no text at all"),
        ("All of this is one single document.\n", "a single document"),
        ("Short.\n\n" + "Long enough for a row of tokens.\n" * 9, r"the valid split has \d tokens"),
        ("Long enough for a row of tokens.\n" * 9 + "\nShort.\n", r"the train split has \d tokens"),
    ],
)
def test_too_little_text_is_an_error_and_leaves_nothing(tmp_path, text, message):
    settings = small(tmp_path / "text.txt", text)
    with pytest.raises(CorpusError, match=message):
        build(settings, tmp_path / "to" / "shards", progress=False)
    assert list((tmp_path / "to").iterdir()) == []


def test_an_existing_folder_is_refused_and_left_alone(settings, tmp_path):
    (tmp_path / "keep.txt").write_text("keep")
    with pytest.raises(ShardError, match="exists already; remove it or"):
        build(settings, tmp_path, progress=False)
    assert (tmp_path / "keep.txt").read_text() == "keep"


def test_a_folder_that_cannot_be_written_is_an_error(settings, corpus):
    with pytest.raises(ShardError, match=r"cannot be written \(Not a directory\)"):
        build(settings, corpus / "shards", progress=False)


def test_bad_text_in_a_worker_stage_leaves_nothing(settings, corpus, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(corpus.read_bytes() + b"\xff\n")
    with pytest.raises(CorpusError, match=r"bad\.txt, line \d+: not valid UTF-8"):
        build(settings.model_copy(update={"corpus": (str(bad),)}), tmp_path / "to", progress=False)
    assert [file.name for file in tmp_path.iterdir()] == ["bad.txt"]


def test_the_command_line_builds_verifies_and_shows(corpus, tmp_path, capsys):
    folder = tmp_path / "shards"
    options = ["--sequence-length", "16", "--vocabulary-size", "250", "--tokenizer", "bpe"]
    options += ["--cased", "--valid-fraction", "0.1", "--max-words", "3000"]
    assert main(["build", "--to", str(folder), "--corpus", str(corpus), *options]) == 0
    settings = BuildSettings.model_validate(open_shards(folder).manifest.settings)
    assert settings == BuildSettings(
        corpus=(str(corpus),),
        sequence_length=16,
        vocabulary_size=250,
        tokenizer="bpe",
        lowercase=False,
        valid_fraction=0.1,
        max_words=3000,
    )
    assert "train: " in capsys.readouterr().err

    assert main(["verify", str(folder)]) == 0
    assert f"{folder}: fine" in capsys.readouterr().out

    assert main(["show", str(folder), "--rows", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("  text ") == shown.count("  masked ") == shown.count("  answers ") == 2


def test_verify_exits_with_1_and_names_each_problem(built, tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 1
    assert "no such file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--to", "FOLDER", "--corpus", "missing.txt"], "missing.txt: no such file"),
        (["build", "--to", "FOLDER", "--valid-fraction", "2"], "--valid-fraction 2.0: Input"),
        (["show", "FOLDER"], "no such file"),
    ],
)
def test_user_errors_are_one_line_and_exit_status_2(tmp_path, capsys, arguments, message):
    folder = str(tmp_path / "new")
    assert main([folder if word == "FOLDER" else word for word in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
