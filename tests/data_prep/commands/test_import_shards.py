import functools

import h5py
import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from data_prep.commands.import_shards import import_shards
from data_prep.commands.verify import verify
from data_prep.settings import BuildSettings
from data_prep.shards import external
from data_prep.shards.format import open_shards
from data_prep.shards.manifest import ShardError
from tests.data_prep.small_shards import (
    FIRST_WORD,
    SPECIAL,
    cut_at_separators,
    random_documents,
    stream_of,
    tokens_of,
    word_tokenizer,
)

S, P = 32, 5
FIELDS = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids")
FIELDS += ("next_sentence_labels",)
PAD, CLS, SEP, MASK = (SPECIAL[name] for name in ("pad", "cls", "sep", "mask"))


class Masker:
    """Writes samples as the authors' programs do: masked once, padded, in arrays."""

    def __init__(self, *, cls=CLS, sep=SEP, mask=MASK, pad=PAD, vocabulary=range(FIRST_WORD, 105)):
        self.cls, self.sep, self.mask, self.pad = cls, sep, mask, pad
        self.vocabulary = list(vocabulary)
        self.random = np.random.default_rng(0)
        self.fields = {name: [] for name in FIELDS}

    def add(self, first, second=None, *, is_random=False):
        tokens = [self.cls, *first, self.sep]
        segments = [0] * len(tokens)
        if second is not None:
            tokens += [*second, self.sep]
            segments += [1] * (len(second) + 1)
        maskable = [i for i, token in enumerate(tokens) if token not in (self.cls, self.sep)]
        places = sorted(self.random.permutation(maskable)[: max(1, len(tokens) * 15 // 100)][:P])
        labels = [tokens[place] for place in places]
        for place in places:
            draw = self.random.random()
            if draw < 0.8:
                tokens[place] = self.mask
            elif draw < 0.9:
                tokens[place] = int(self.random.choice(self.vocabulary))
        padding, free = [0] * (S - len(tokens)), [0] * (P - len(places))
        self.fields["input_ids"].append(tokens + [self.pad] * len(padding))
        self.fields["input_mask"].append([1] * len(tokens) + padding)
        self.fields["segment_ids"].append(segments + padding)
        self.fields["masked_lm_positions"].append(places + free)
        self.fields["masked_lm_ids"].append(labels + free)
        self.fields["next_sentence_labels"].append(int(is_random))

    def arrays(self, leave_out=()):
        return {name: np.array(rows) for name, rows in self.fields.items() if name not in leave_out}


def masked(texts, **options):
    masker = Masker(**options)
    for text in texts:
        masker.add(text)
    return masker


def write_flat(file, arrays, *, ids="u2"):
    """NVIDIA's, bing_bert's and 24hBERT's layout: gzip, small integers."""
    with h5py.File(file, "w") as content:
        for name, rows in arrays.items():
            kind = ids if name.endswith("ids") and name != "segment_ids" else "i1"
            kind = "i4" if name == "masked_lm_positions" else kind
            content.create_dataset(name, data=rows, dtype=kind, compression="gzip")


def write_groups(file, arrays, *, size=7):
    with h5py.File(file, "w") as content:
        for number in range(0, len(arrays["input_ids"]), size):
            group = content.create_group(f"{number // size}")
            for name, rows in arrays.items():
                group[name] = rows[number] if size == 1 else rows[number : number + size]


@pytest.fixture
def tokenizer(tmp_path):
    file = tmp_path / "theirs.json"
    word_tokenizer().save(str(file))
    return str(file)


def texts_of(folder):
    """Return the texts of the new folder in the order in which they were: every 5th is valid."""
    shards = open_shards(folder)
    train, valid = (cut_at_separators(tokens_of(shards, name)) for name in ("train", "valid"))
    texts = []
    while valid:
        texts += [valid.pop(0), *train[:4]]
        train = train[4:]
    return texts


def imported(places, to, tokenizer, **options):
    places = places if isinstance(places, list) else [places]
    options = {"tokenizer": tokenizer, "valid_fraction": 0.2, "sequence_length": 3} | options
    given = {name: value for name, value in options.items() if value is not None}
    return import_shards(places, to, BuildSettings().model_copy(update=given))


TEXTS = random_documents(43, longest=S - 2)
WITHOUT_PAIRS = {"next_sentence_labels"}


@pytest.mark.parametrize(
    ("write", "leave_out"),
    [
        (write_flat, WITHOUT_PAIRS),
        (write_flat, WITHOUT_PAIRS | {"input_mask", "segment_ids"}),
        (functools.partial(write_groups, size=1), set()),
        (write_groups, WITHOUT_PAIRS),
    ],
)
def test_the_text_of_each_layout_comes_back_exactly(
    tmp_path, tokenizer, write, leave_out, monkeypatch
):
    monkeypatch.setattr(external, "SAMPLES_PER_READ", 10)
    arrays = masked(TEXTS).arrays(leave_out)
    assert (arrays["input_ids"] == MASK).any()
    write(tmp_path / "theirs.hdf5", arrays)
    manifest = imported(tmp_path / "theirs.hdf5", tmp_path / "new", tokenizer)
    assert texts_of(tmp_path / "new") == TEXTS
    assert verify(tmp_path / "new") == []
    assert manifest.splits["train"].tokens + manifest.splits["valid"].tokens == sum(map(len, TEXTS))
    assert manifest.cleaning == {"samples": 43, "texts": 43}
    assert {file.suffix for file in (tmp_path / "new").iterdir()} == {".h5", ".json"}


def test_pairs_that_follow_each_other_are_one_text_and_random_pairs_two(tmp_path, tokenizer):
    masker, expected = Masker(), []
    halves = random_documents(40, longest=S // 2 - 2)
    for number, (first, second) in enumerate(zip(halves[::2], halves[1::2], strict=True)):
        is_random = number % 3 == 0
        masker.add(first, second, is_random=is_random)
        expected += [first, second] if is_random else [first + second]
    write_flat(tmp_path / "theirs.hdf5", masker.arrays())
    imported(tmp_path / "theirs.hdf5", tmp_path / "new", tokenizer)
    found = texts_of(tmp_path / "new")
    assert found[: len(expected)] == expected


def roberta_tokenizer(file):
    """<s> has id 0, <mask> the last one."""
    names = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{n}" for n in range(60)), "<mask>"]
    vocabulary = {text: number for number, text in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.save(str(file))
    return str(file)


@pytest.mark.parametrize("leave_out", [set(), {"input_mask"}])
def test_padding_with_the_id_of_the_first_token_is_no_text(tmp_path, leave_out):
    tokenizer = roberta_tokenizer(tmp_path / "theirs.json")
    texts = [[token % 60 + 4 for token in text] for text in TEXTS]
    masker = masked(texts, cls=0, sep=2, mask=64, pad=0, vocabulary=range(4, 64))
    write_flat(tmp_path / "theirs.hdf5", masker.arrays(WITHOUT_PAIRS | leave_out))
    imported(tmp_path / "theirs.hdf5", tmp_path / "new", tokenizer)
    shards = open_shards(tmp_path / "new")
    found = sorted(token for name in ("train", "valid") for token in tokens_of(shards, name))
    expected = sorted(token for text in texts for token in text)
    assert [token for token in found if token != 2] == expected
    assert verify(tmp_path / "new") == []


def test_copies_with_other_masks_are_dropped_and_counted(tmp_path, tokenizer):
    (tmp_path / "theirs").mkdir()
    for copy in range(3):
        arrays = masked(TEXTS if copy else TEXTS[:20]).arrays(WITHOUT_PAIRS)
        write_flat(tmp_path / "theirs" / f"part{copy}.hdf5", arrays)
    manifest = imported(tmp_path / "theirs", tmp_path / "new", tokenizer)
    assert texts_of(tmp_path / "new") == TEXTS
    assert manifest.cleaning == {"samples": 106, "texts": 106, "texts dropped: repeated": 63}


def test_rows_are_packed_again_in_the_length_of_the_samples(tmp_path, tokenizer):
    write_flat(tmp_path / "theirs.hdf5", masked(TEXTS).arrays(WITHOUT_PAIRS))
    manifest = imported(tmp_path / "theirs.hdf5", tmp_path / "new", tokenizer, sequence_length=None)
    assert manifest.sequence_length == S
    found = tokens_of(open_shards(tmp_path / "new"), "train")
    assert found == stream_of([text for i, text in enumerate(TEXTS) if i % 5])[: len(found)]
    assert len(found) > 100


def test_a_text_that_holds_a_special_token_is_dropped_and_counted(tmp_path, tokenizer):
    texts = [*TEXTS[:20], [9, MASK, 9, 9, 9, 9, 9, 9], *TEXTS[20:]]
    write_flat(tmp_path / "theirs.hdf5", masked(texts).arrays(WITHOUT_PAIRS))
    manifest = imported(tmp_path / "theirs.hdf5", tmp_path / "new", tokenizer)
    assert texts_of(tmp_path / "new") == TEXTS
    assert manifest.cleaning["samples dropped: special tokens in their text"] == 1


@pytest.mark.parametrize(
    ("more", "options"), [([[500] * 9], {}), ([], {"cls": 50}), ([], {"sep": 50})]
)
def test_shards_of_another_tokenizer_are_refused(tmp_path, tokenizer, more, options):
    texts = 4 * TEXTS + more
    write_flat(tmp_path / "theirs.hdf5", masked(texts, **options).arrays(WITHOUT_PAIRS))
    with pytest.raises(ShardError, match="ids below 105, begin with 2 and end with 3"):
        imported(tmp_path / "theirs.hdf5", tmp_path / "new", tokenizer)
    assert not (tmp_path / "new").exists()


def with_entry(rows, place, value):
    rows[place] = value
    return rows


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (None, None),  # the file is cut short
        ("masked_lm_positions", lambda rows: with_entry(rows, (3, 0), S)),
        ("input_mask", lambda rows: with_entry(rows, (3, 1), 0)),
        ("masked_lm_ids", lambda rows: rows[:, :-1]),
        *((name, lambda rows: rows[:-1]) for name in FIELDS[:-1] if name != "segment_ids"),
        ("masked_lm_ids", None),  # the field is missing
    ],
)
def test_a_damaged_file_is_refused_by_name_or_skipped_and_counted(
    tmp_path, tokenizer, name, change
):
    (tmp_path / "theirs").mkdir()
    arrays = masked(TEXTS).arrays(WITHOUT_PAIRS)
    damaged = arrays | ({name: change(arrays[name].copy())} if change else {})
    if name and not change:
        del damaged[name]
    for file, content in (("a", damaged), ("b", arrays)):
        write_flat(tmp_path / "theirs" / f"{file}.hdf5", content)
    if name is None:
        file = tmp_path / "theirs" / "a.hdf5"
        file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ShardError, match=r"theirs/a\.hdf5: cannot be read .*--data.damaged_files"):
        imported(tmp_path / "theirs", tmp_path / "new", tokenizer)
    manifest = imported(tmp_path / "theirs", tmp_path / "new", tokenizer, damaged_files="skip")
    assert manifest.cleaning["skipped: damaged files, from the damage on"] == 1
    assert texts_of(tmp_path / "new") == TEXTS


def test_other_files_and_empty_folders_are_refused(tmp_path, tokenizer):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ShardError, match=r"empty: no \.h5, \.hdf, \.hdf5 file is there"):
        imported(tmp_path / "empty", tmp_path / "new", tokenizer)
    with pytest.raises(ShardError, match="nowhere: no .* is there"):
        imported(tmp_path / "nowhere", tmp_path / "new", tokenizer)
    with h5py.File(tmp_path / "ours.h5", "w") as content:
        content["ids"] = [[1, 2]]
    with h5py.File(tmp_path / "ragged.h5", "w") as content:  # MLPerf's
        for name in ("input_ids", "masked_lm_positions", "masked_lm_ids"):
            content.create_dataset(name, (3,), dtype=h5py.vlen_dtype(np.dtype("int16")))
    with pytest.raises(ShardError, match="ragged.h5: samples of different lengths are not read"):
        imported(tmp_path / "ragged.h5", tmp_path / "new", tokenizer)
    with pytest.raises(ShardError, match="holds ids and no input_ids; only shards of others"):
        imported(tmp_path / "ours.h5", tmp_path / "new", tokenizer)
