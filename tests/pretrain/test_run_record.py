import pytest

from pretrain.run_record import RunRecord


def test_a_checkpoint_counts_only_when_it_is_complete(tmp_path):
    record = RunRecord(tmp_path)
    partial = record.partial_folder(5)
    (partial / "weights").write_bytes(b"1")
    assert not record.checkpoint_folder(5).exists()
    record.complete_checkpoint(5, {"step": 5}, None)
    assert (record.checkpoint_folder(5) / "weights").read_bytes() == b"1"
    assert not partial.exists()


def test_an_empty_file_in_a_checkpoint_is_noticed_before_the_older_one_is_removed(tmp_path):
    record = RunRecord(tmp_path)
    record.partial_folder(5)
    record.complete_checkpoint(5, {"step": 5}, 1)
    (record.partial_folder(6) / "weights").write_bytes(b"")
    with pytest.raises(OSError, match="weights is empty: the checkpoint was not written"):
        record.complete_checkpoint(6, {"step": 6}, 1)
    assert record.checkpoint_folder(5).exists() and not record.checkpoint_folder(6).exists()


def test_what_an_interrupted_launch_left_of_a_checkpoint_is_removed(tmp_path):
    record = RunRecord(tmp_path)
    (record.partial_folder(5) / "half").write_bytes(b"1")
    assert list(record.partial_folder(5).iterdir()) == []
