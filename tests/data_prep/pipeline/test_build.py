import json

import numpy as np
import pyarrow
from pyarrow import parquet
from tokenizers import Tokenizer

from data_prep.commands.verify import verify
from data_prep.pipeline import build as build_module
from data_prep.pipeline.build import build
from data_prep.settings import BuildSettings
from data_prep.shards.format import open_shards
from data_prep.shards.packing import documents_of
from data_prep.sources import text
from data_prep.text.moses import moses_words
from tests.data_prep.pipeline.test_refusals import settings_for
from tests.data_prep.small_shards import contents, tokens_of


def stream_of(folder, name):
    return tokens_of(open_shards(folder), name)


def texts_of(folder, name):
    """Return the documents of a split as text."""
    shards = open_shards(folder)
    tokenizer = Tokenizer.from_file(str(shards.tokenizer_path))
    tokens = np.array(stream_of(folder, name))
    sep = shards.manifest.tokenizer.special_tokens["sep"]
    return [tokenizer.decode(ids.tolist()) for ids in documents_of([tokens], sep)]


def documents_in(file):
    """Return the paragraphs of each document of a text file."""
    blocks = file.read_text(encoding="utf-8").split("\n\n")
    return [block.split("\n") for block in map(str.strip, blocks) if block]


def small(file, text, **changes):
    file.write_text(text, encoding="utf-8")
    return settings_for(file, **changes)


def numbered(count, name="text"):
    """Return documents none of which repeats anything, as one text."""
    return "".join(
        f"The {name} of number {n} says {n * 7}.\nAnd {n} ends.\n\n" for n in range(count)
    )


def test_a_built_folder_is_complete_and_nothing_else(built, settings, corpus):
    manifest = open_shards(built).manifest
    shards = {shard.file for split in manifest.splits.values() for shard in split.shards}
    assert set(contents(built)) == {"manifest.json", "tokenizer.json"} | shards
    assert [file.name for file in built.parent.iterdir()] == ["shards"]
    assert len(manifest.splits["train"].shards) > 1
    assert verify(built) == []
    assert BuildSettings.model_validate(manifest.settings) == settings
    assert str(corpus) in manifest.source and manifest.licence
    assert manifest.tokenizer.special_tokens == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def test_sequences_are_the_encoded_documents_in_order(built, corpus):
    shards = open_shards(built)
    tokenizer = Tokenizer.from_file(str(shards.tokenizer_path))
    documents = documents_in(corpus)
    for name, chosen in {
        "train": [document for i, document in enumerate(documents) if i % 10],
        "valid": documents[::10],
    }.items():
        expected = []
        for document in chosen:
            ids = tokenizer.encode(" ".join(document), add_special_tokens=False).ids
            expected += [3, *ids] if expected else ids
        found = stream_of(built, name)
        assert found == expected[: len(found)]
        record = shards.manifest.splits[name]
        assert record.documents == len(chosen)
        assert record.words == sum(len(p.split()) for document in chosen for p in document)
        assert record.tokens == len(expected) - (len(chosen) - 1)
        assert record.rows + record.rows_dropped == len(expected) // 14


def test_max_words_bounds_what_is_used(few, tmp_path):
    (tmp_path / "unread.txt").write_text("Words.\n")
    places = (*few.corpus, str(tmp_path / "unread.txt"))
    limited = few.model_copy(update={"max_words": 500, "corpus": places})
    manifest = build(limited, tmp_path / "shards", workers=1, segment_bytes=500)
    assert "text.txt" in manifest.source and "unread" not in manifest.source
    splits = manifest.splits
    num_words = 0
    for paragraph in sum(documents_in(tmp_path / "text.txt"), []):
        if num_words < 500:
            num_words += len(paragraph.split())
    assert sum(split.words for split in splits.values()) == num_words
    assert 500 <= num_words < 560


def test_the_tokenizer_does_not_see_held_out_documents(tmp_path):
    settings = small(tmp_path / "text.txt", "ж " * 50 + "\n\n" + numbered(60))
    build(settings, tmp_path / "shards", workers=1)
    vocabulary = json.loads((tmp_path / "shards" / "tokenizer.json").read_text())["model"]["vocab"]
    assert "ж" not in vocabulary
    assert "number" in vocabulary


def test_a_tokenizer_of_a_large_text_is_trained_on_a_part_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(build_module, "SAMPLE_CHARACTERS", 260)
    text = "".join(f"{'abcdefghij'[n % 10] * 3} word.\n{n} x\n\n" for n in range(200))
    settings = small(tmp_path / "text.txt", text)
    build(settings, tmp_path / "shards", workers=1)
    vocabulary = json.loads((tmp_path / "shards" / "tokenizer.json").read_text())["model"]["vocab"]
    letters = {letter for letter in "abcdefghij" if letter * 3 in vocabulary}
    assert 1 <= len(letters) < 10


def test_repeated_documents_and_paragraphs_are_dropped_and_counted(tmp_path):
    text = numbered(40) + "Once more.\nAnd 3 ends.\n\n" + numbered(2) + "And 4 ends.\n\n"
    twice = {"documents dropped: repeated": 2}
    more = {"documents dropped: every paragraph repeated": 1, "paragraphs dropped: repeated": 2}
    for deduplicate, documents, words, cleaning in (
        ("none", 44, 428, {}),
        ("documents", 42, 408, twice),
        ("paragraphs", 41, 402, twice | more),
    ):
        settings = small(tmp_path / "text.txt", text, deduplicate=deduplicate)
        manifest = build(settings, tmp_path / deduplicate, workers=1, segment_bytes=1000)
        splits = manifest.splits.values()
        assert sum(split.documents for split in splits) == documents
        assert sum(split.words for split in splits) == words
        assert manifest.cleaning == cleaning


def test_lines_that_many_documents_repeat_are_dropped_with_a_note(tmp_path, capsys):
    text = "".join(f"Note {n} is short.\nNothing else was found.\n\n" for n in range(60))
    build(small(tmp_path / "text.txt", text), tmp_path / "shards", workers=1)
    assert "note: 49% of the paragraphs" in capsys.readouterr().err  # 59 of 120


def test_a_long_document_is_held_out_whole_or_not_at_all(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(text, "LONGEST_DOCUMENT", 100)
    names = ["oft", "not", "ton", "too", "fit", "tin"]  # of letters that each side has
    lines = [[f"{name} {n} of it.\n" for n in range(40)] for name in names]
    settings = small(tmp_path / "text.txt", "\n".join("".join(each) for each in lines))
    splits = build(settings, tmp_path / "shards", workers=1, segment_bytes=250).splits
    held_out, trained = (texts_of(tmp_path / "shards", name) for name in ("valid", "train"))
    assert {each.split()[0] for each in held_out} == {"oft"}, "more than a tenth, but whole"
    assert {each.split()[0] for each in trained} == set(names[1:])
    share = splits["valid"].tokens / (splits["valid"].tokens + splits["train"].tokens)
    assert (
        f"  valid ({share:.2%} of the tokens): {len(held_out)} documents" in capsys.readouterr().err
    )


def test_sentences_of_wikipedia_with_holes_do_not_reach_the_shards(tmp_path):
    articles = [
        f'<doc id="{n}" title="T">\nT\n\nItem {n} is one. It had a draught of .\n</doc>\n'
        for n in range(50)
    ]
    (tmp_path / "wiki_00").write_text("".join(articles))
    folder = tmp_path / "wikipedia"
    folder.mkdir()
    gaps = [{"text": f"Row {n} ends.  It grew by  later.\nRow {n} goes on."} for n in range(50)]
    parquet.write_table(pyarrow.Table.from_pylist(gaps), folder / "a.parquet")
    corpus = (str(tmp_path / "wiki_00"), f"hub:{folder}")
    settings = small(tmp_path / "unused.txt", "", corpus=corpus)
    manifest = build(settings, tmp_path / "shards", workers=1)
    assert manifest.cleaning["sentences dropped: holes of templates, or markup"] == 100
    assert sum(split.words for split in manifest.splits.values()) == 550
    texts = [text for name in manifest.splits for text in texts_of(tmp_path / "shards", name)]
    assert not any("draught" in text or "grew" in text for text in texts)


def test_a_weight_says_how_often_a_training_document_is_used(tmp_path):
    (tmp_path / "half.txt").write_text(numbered(40, "half"))
    (tmp_path / "often.txt").write_text(numbered(40, "often"))
    corpus = (f"{tmp_path / 'half.txt'}:weight=0.5", f"{tmp_path / 'often.txt'}:weight=2.5")
    settings = small(tmp_path / "unused.txt", "", corpus=corpus, deduplicate="none")
    folder = tmp_path / "shards"
    manifest = build(settings, folder, workers=1, segment_bytes=300)
    train, valid = texts_of(folder, "train"), texts_of(folder, "valid")
    # The last sequence is not full: the text of which it holds a part came before.
    train[-1] = next(text for text in train if text.startswith(train[-1]))
    halves = [text for text in train if "half" in text]
    often = [text for text in train if "often" in text]
    # 20 of "half" and 40 of "often" are read, every tenth is held out; half of 36 come again.
    assert len(halves) == 18 == len(set(halves))
    assert len(valid) == 6 == len(set(valid))
    assert not set(valid) & set(train)
    repeats = {text: often.count(text) for text in often}
    assert len(repeats) == 36
    assert set(repeats.values()) == {2, 3}
    assert sum(repeats.values()) == 90
    nearest = min(
        later - earlier
        for text in repeats
        for places in [[i for i, other in enumerate(train) if other == text]]
        for earlier, later in zip(places, places[1:], strict=False)
    )
    assert nearest > 15, "copies must not lie side by side"
    assert manifest.cleaning == {"documents left out: weight below 1": 20}
    assert manifest.splits["train"].documents == 18 + sum(repeats.values())


def test_every_tenth_may_be_held_out_and_every_tenth_of_the_others_used_again(tmp_path):
    (tmp_path / "few.txt").write_text(numbered(100, "few"))
    corpus = (f"{tmp_path / 'few.txt'}:weight=1.1",)
    settings = small(tmp_path / "unused.txt", "", corpus=corpus, deduplicate="none")
    splits = build(settings, tmp_path / "shards", workers=1, segment_bytes=2000).splits
    assert (splits["valid"].documents, splits["train"].documents) == (10, 90 + 9)


def test_the_route_of_the_tupe_paper_builds(tmp_path):
    text = "".join(
        f"It's “item {n}”, isn't it?  Costs $3.{n}, Dr. Who said.\n\n" for n in range(40)
    )
    settings = small(tmp_path / "text.txt", text, preset="tupe", vocabulary_size=300)
    assert (settings.sentences, settings.moses, settings.tokenizer) == ("spacy", True, "bpe")
    manifest = build(settings, tmp_path / "shards", workers=1)
    assert manifest.tokenizer.moses == "en"
    tokenizer = Tokenizer.from_file(str(tmp_path / "shards" / "tokenizer.json"))
    sentences = ("It's “item 1”, isn't it?", "Costs $3.1, Dr. Who said.")
    words = " ".join(moses_words(sentence, "en") for sentence in sentences)
    assert "' s" not in words
    assert " 's " in words
    expected = tokenizer.encode(words, add_special_tokens=False).ids
    assert stream_of(tmp_path / "shards", "train")[: len(expected)] == expected
    assert tokenizer.encode("isn 't", add_special_tokens=False).tokens[-1] == "'t"


def test_a_long_document_that_is_held_out_is_said(tmp_path, capsys):
    for name in "ab":
        lines = (f"In {name} boat {n} is moved after boat {n * 7}, never both." for n in range(99))
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    for key, is_said in (("", True), (":documents=line", False)):
        corpus = tuple(f"{tmp_path / name}.txt{key}" for name in "ab")
        settings = BuildSettings(corpus=corpus, sequence_length=8)
        build(settings, tmp_path / f"shards{key}", workers=1)
        assert ("warning: 50% of the tokens are held out" in capsys.readouterr().err) == is_said
