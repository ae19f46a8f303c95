"""A build stops where its text is skipped or unknown in large part, and leaves little behind."""

import json

import pytest
from tokenizers import normalizers

from data_prep.pipeline import build as build_module
from data_prep.pipeline.build import build
from data_prep.settings import BuildSettings
from data_prep.shards.manifest import ShardError
from data_prep.sources.source import CorpusError
from data_prep.tokenizer.describe import TokenizerError
from tests.data_prep.small_shards import word_tokenizer


def settings_for(*corpus, **changes):
    small = {"sequence_length": 8, "vocabulary_size": 200, "valid_fraction": 0.1}
    return BuildSettings(**{"corpus": tuple(map(str, corpus)), **small, **changes})


def lines_with(num_bad, count=300, bad="Le café numéro {} est fermé.\n\n"):
    """Return text in which `num_bad` of the lines are Latin-1, the first of them line 1."""
    lines = [
        bad.format(n) if n < num_bad else f"The line of number {n} says {n * 7}.\n\n"
        for n in range(count)
    ]
    return "".join(lines).encode("latin-1")


@pytest.mark.parametrize(
    ("num_bad", "damaged", "allowed"), [(7, "stop", "2%"), (151, "skip", "50%")]
)
def test_more_than_the_allowed_share_is_refused_and_leaves_nothing(
    tmp_path, num_bad, damaged, allowed
):
    file = tmp_path / "a.txt"
    file.write_bytes(lines_with(num_bad))
    with pytest.raises(CorpusError) as error:
        build(settings_for(file, damaged_files=damaged), tmp_path / "shards", workers=1)
    assert (
        f"{file}: {num_bad} of 300 lines were skipped ({num_bad / 300:.1%}, allowed: {allowed}): "
        f"not valid UTF-8, first in {file} line 1; fix or remove them, or convert the file with "
        "iconv" in str(error.value)
    )
    assert str(error.value).endswith("--data.damaged_files skip") == (damaged == "stop")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(("num_bad", "damaged"), [(6, "stop"), (150, "skip")])
def test_less_than_the_allowed_share_makes_no_difference(tmp_path, num_bad, damaged):
    file, clean = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_bytes(lines_with(num_bad))
    clean.write_bytes(b"".join(lines_with(num_bad).splitlines(True)[2 * num_bad :]))
    manifest = build(settings_for(file, damaged_files=damaged), tmp_path / "shards", workers=1)
    assert manifest.cleaning == {"skipped: not valid UTF-8": num_bad}
    assert manifest.splits == build(settings_for(clean), tmp_path / "clean", workers=1).splits


def test_records_that_are_skipped_count_as_documents(tmp_path):
    file = tmp_path / "a.jsonl"
    good = [json.dumps({"text": f"One {n}.\nTwo {n}.\nThree {n}."}) + "\n" for n in range(90)]
    file.write_text("".join([*good, *['{"text": \n'] * 10]))
    with pytest.raises(CorpusError, match="10 of 100 documents .*: not valid JSON") as error:
        build(settings_for(file), tmp_path / "shards", workers=1)
    assert f"first in {file} line 91;" in str(error.value)


def test_each_source_is_judged_alone_and_a_long_one_before_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(build_module, "WORTH_KEEPING", 3)
    (tmp_path / "good.txt").write_bytes(lines_with(0))
    bad = tmp_path / "bad.txt"
    bad.write_bytes(lines_with(100, bad="Some good words {0}.\nLe café {0}.\n\n"))
    settings = settings_for(tmp_path / "good.txt", bad)
    with pytest.raises(CorpusError, match="bad.txt: .* lines were skipped") as error:
        build(settings, tmp_path / "s", workers=1, segment_bytes=350)
    num_lines = int(str(error.value).partition(" of ")[2].partition(" lines")[0].replace(",", ""))
    assert num_lines < 400 / 2
    # What was read of the first source is used when the second one is allowed.
    first = tmp_path / "s.building" / "segments" / "000000.read.json"
    before = first.stat().st_mtime_ns
    with pytest.raises(CorpusError, match="bad.txt"):
        build(settings, tmp_path / "s", workers=1, segment_bytes=350)
    assert first.stat().st_mtime_ns == before


@pytest.mark.parametrize("strips", [False, True])
def test_a_tokenizer_that_knows_no_word_is_refused_and_leaves_nothing(
    tmp_path, monkeypatch, capsys, strips
):
    monkeypatch.setattr(build_module, "WORTH_KEEPING", 1)
    (tmp_path / "a.txt").write_bytes(lines_with(0))
    tokenizer = word_tokenizer()
    steps = [normalizers.NFD(), normalizers.StripAccents()][: 1 + strips]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = settings_for(tmp_path / "a.txt", tokenizer=str(tmp_path / "tokenizer.json"))
    message = r"tokenizer\.json: \d+% of the tokens of this text are \[UNK\]"
    with pytest.raises(TokenizerError, match=message):
        build(settings, tmp_path / "shards", workers=1)
    assert not list(tmp_path.glob("shards*"))
    assert ("strips accents: ä becomes a" in capsys.readouterr().err) == strips


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (" \n\n", CorpusError, r"a\.txt: no text at all"),
        ("One line.\nAnother line.\n", CorpusError, "a single document, .*:documents=line"),
        ("One.\n\nTwo.\n\n", ShardError, "the train split has 2 tokens in 1 documents, too few"),
    ],
)
def test_too_little_text_is_refused_and_leaves_nothing(tmp_path, text, error, message, monkeypatch):
    monkeypatch.setattr(build_module, "WORTH_KEEPING", 1)
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(error, match=message):
        build(settings_for(tmp_path / "a.txt"), tmp_path / "shards", workers=1)
    assert not list(tmp_path.glob("shards*"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"language": "EN"}, "language='EN' is not a code of a language"),
        ({"language": "zz", "sentences": "spacy"}, "language='zz': spaCy does not know it"),
        ({"tokenizer": "vocab.txt", "lowercase": False}, "data.lowercase=False has no effect on a"),
    ],
)
def test_settings_that_must_fail_are_refused_before_anything_is_read(tmp_path, changes, message):
    settings = settings_for(tmp_path / "absent.txt", **changes)
    with pytest.raises(TokenizerError, match=message):
        build(settings, tmp_path / "shards", workers=1)
