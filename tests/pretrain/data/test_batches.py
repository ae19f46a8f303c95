import numpy
import pytest
import torch
from tokenizers import Tokenizer

from data_prep.masking import IGNORED, Masking, mask_sequences
from data_prep.shards.format import SplitSequences
from data_prep.tokenizer.describe import holes_of, word_starts
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.data.batches import (
    HeldOutBatches,
    MaskedSplit,
    Place,
    TrainingBatches,
    batches_from,
    epoch_order,
)
from pretrain.data.shards import (
    HELD_OUT_SEED,
    existing_shards,
    held_out_fingerprint,
    open_data,
    shards_folder,
)
from tests.pretrain.data.conftest import settings


class UnmaskedSequences(MaskedSplit):
    """Gives back the row numbers instead of the rows, to see who reads what."""

    def batch(self, numbers, *, seed, epoch):
        batch = super().batch(numbers, seed=seed, epoch=epoch)
        return batch._replace(ids_BS=torch.from_numpy(numbers.astype(numpy.int64))[:, None])


def rows_read(opened, settings, micro, world_size, indices):
    """Row numbers in the order of the global samples, put together from all ranks."""
    read = []
    datasets = []
    for rank in range(world_size):
        dataset = TrainingBatches(opened, settings, Place(micro, rank=rank, world_size=world_size))
        dataset.sequences = UnmaskedSequences(opened, "train", settings)
        datasets.append(dataset)
    for index in indices:
        for dataset in datasets:
            read += dataset[index].ids_BS.flatten().tolist()
    return read


@pytest.mark.parametrize(("micro", "world_size"), [(4, 1), (2, 3)])
def test_every_row_is_read_once_per_epoch_over_all_ranks(opened, shards, micro, world_size):
    num_rows = opened.split("train").num_sequences
    batches = -(-2 * num_rows // (micro * world_size))
    read = rows_read(opened, settings(shards), micro, world_size, range(batches))
    for epoch in range(2):
        assert sorted(read[epoch * num_rows : (epoch + 1) * num_rows]) == list(range(num_rows))
    assert read[:num_rows] != read[num_rows : 2 * num_rows]


def test_the_order_of_the_samples_does_not_depend_on_the_number_of_ranks(opened, shards):
    one = rows_read(opened, settings(shards), 12, 1, range(10))
    assert rows_read(opened, settings(shards), 4, 3, range(10)) == one
    assert rows_read(opened, settings(shards), 1, 2, range(60)) == one


def test_flat_positions_point_at_the_masked_tokens(opened, shards):
    rows = MaskedSplit(opened, "train", settings(shards))
    numbers = numpy.array([7, 3, 100])
    batch = rows.batch(numbers, seed=1, epoch=2)
    originals = rows.split.read(numbers).astype(numpy.int64).ravel()
    assert batch.labels_M.tolist() == originals[batch.positions_M.numpy()].tolist()
    changed = numpy.flatnonzero(batch.ids_BS.numpy().ravel() != originals)
    assert set(changed) <= set(batch.positions_M.tolist())
    assert len(batch.positions_M) == 3 * round(0.15 * 32)


def test_a_batch_that_spans_two_epochs_masks_each_row_as_its_epoch_does(opened, shards):
    num_rows = opened.split("train").num_sequences
    dataset = TrainingBatches(opened, settings(shards), Place(num_rows - 3, rank=0, world_size=1))
    batch, rows = dataset[1], dataset.sequences
    old = rows.batch(epoch_order(num_rows, 0, 0)[-3:], seed=0, epoch=0)
    new = rows.batch(epoch_order(num_rows, 0, 1)[: num_rows - 6], seed=0, epoch=1)
    assert torch.equal(batch.ids_BS, torch.cat([old.ids_BS, new.ids_BS]))
    assert torch.equal(batch.labels_M, torch.cat([old.labels_M, new.labels_M]))
    tokens = batch.ids_BS.flatten()[batch.positions_M]
    expected = [part.ids_BS.flatten()[part.positions_M] for part in (old, new)]
    assert torch.equal(tokens, torch.cat(expected))


def test_a_run_starts_at_any_item_without_reading_those_before(opened, shards, monkeypatch):
    read, rows = [], SplitSequences.read
    monkeypatch.setattr(SplitSequences, "read", lambda s, i: read.append(len(i)) or rows(s, i))
    orders = []
    monkeypatch.setattr(
        "pretrain.data.batches.epoch_order", lambda *key: orders.append(key) or epoch_order(*key)
    )
    dataset = TrainingBatches(opened, settings(shards), Place(4, rank=1, world_size=2))
    counts = []
    for first in (0, 10**9):
        batch = next(batches_from(dataset, first, first + 2, pin_memory=False))
        counts.append((sum(read), len(orders)))
        assert torch.equal(batch.ids_BS, dataset[first].ids_BS)
        read.clear()
        orders.clear()
    assert counts[0] == counts[1] == (4, 1)


def test_words_are_those_of_the_tokenizer_beside_the_shards(opened, shards):
    words = ("--data.masking", "spans", "--data.masked_probability", "0.3")
    chosen = settings(shards, *words, "--data.mask_shares", "0.5,0.2")
    tokenizer = Tokenizer.from_file(str(opened.tokenizer_path))
    shares = {"mask_token_share": 0.5, "random_token_share": 0.2, "holes": holes_of(tokenizer)}
    rows, numbers = MaskedSplit(opened, "train", chosen), numpy.arange(50)
    asked = Masking("spans", 0.3, word_starts=word_starts(tokenizer), **shares)
    key = {"seed": 1, "epoch": 0, "tokenizer": opened.manifest.tokenizer, "masking": asked}
    expected = mask_sequences(rows.split.read(numbers), numbers, **key)
    assert (rows.batch(numbers, seed=1, epoch=0).ids_BS.numpy() == expected.ids).all()


def test_words_of_writing_without_spaces_are_refused(shards, monkeypatch):
    monkeypatch.setattr("pretrain.data.shards.word_starts", lambda _: numpy.arange(1024) == 3)
    with pytest.raises(ConfigError, match=r"'spans': a word of this text has \d+ tokens on"):
        open_data(settings(shards, "--data.masking", "spans"))


@pytest.mark.parametrize(("micro", "world_size"), [(4, 1), (7, 2)])
def test_held_out_rows_are_read_once_with_the_same_masks_by_any_ranks(
    opened, shards, micro, world_size
):
    chosen = settings(shards, "--evaluation.rows", "12", "--seed", "9")
    num_rows = opened.split("valid").num_sequences
    spread = numpy.floor(numpy.linspace(0, num_rows, 12, endpoint=False) + 1e-9).astype(int)
    expected = MaskedSplit(opened, "valid", chosen).batch(spread, seed=HELD_OUT_SEED, epoch=0)
    parts = [
        HeldOutBatches(opened, chosen, Place(micro, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    assert len({len(part) for part in parts}) == 1
    batches = [part[index] for index in range(len(parts[0])) for part in parts]
    # Equal shapes: each other one would be compiled for itself.
    assert {batch.ids_BS.shape for batch in batches} == {(micro, 32)}
    ids, labels = (torch.cat([batch[n].view(micro, -1) for batch in batches]) for n in (0, 2))
    assert torch.equal(ids[:12], expected.ids_BS)
    assert torch.equal(labels[:12].flatten(), expected.labels_M)
    assert labels[12:].eq(IGNORED).all()


def test_the_held_out_fingerprint_changes_with_what_the_loss_depends_on(opened, shards):
    electra = ("--objective", "replaced_token_detection")
    chosen = (
        (),
        ("--evaluation.rows", "8"),
        ("--data.masked_probability", "0.2"),
        ("--data.masking", "words"),
        ("--data.masking", "spans"),
        ("--data.mask_shares", "0.8,0"),
        electra,
        (*electra, "--electra.generator_width", "0.5"),
    )
    found = [held_out_fingerprint(opened, settings(shards, *words)) for words in chosen]
    assert len(set(found)) == len(chosen)
    assert found[0] == held_out_fingerprint(opened, settings(shards, "--seed", "2"))


def test_runs_with_equal_data_settings_share_their_shards():
    bert, tupe, longer = (
        shards_folder(load_settings(*words))
        for words in (["bert_a"], ["tupe_r_pld"], ["bert_a", ["--corpus", "x"]])
    )
    assert bert == tupe != longer


def test_shards_are_missing_only_where_none_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert existing_shards(load_settings("tupe_base")) is None  # it brings no text
    assert existing_shards(load_settings("tiny_cpu")) is None  # not built yet
    with pytest.raises(ValueError, match="there are no shards in nowhere"):
        existing_shards(load_settings("tiny_cpu", ["--data.shards", "nowhere"]))


def test_folders_that_were_named_before_a_setting_existed_are_found_again():
    """What decides only whether a build stops is no part of the name."""
    for option in ([], ["--data.damaged_files", "skip"]):
        settings = load_settings("tiny_cpu", ["--corpus", "texts/a.txt", *option])
        assert shards_folder(settings).name == "a-s32-v1024-832ec218"
