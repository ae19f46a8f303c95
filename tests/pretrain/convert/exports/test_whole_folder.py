"""A folder of an export is whole or absent, whatever stops the program."""

import pytest

from pretrain.convert.exports.whole_folder import written_whole


class KilledError(BaseException):
    """What ends the program in a test."""


def write(target, word):
    with written_whole(target) as partial:
        (partial / "word").write_text(word)


def test_an_export_that_was_killed_between_its_renames_is_put_back(tmp_path):
    target, before = tmp_path / "it", tmp_path / ".it.partial" / "before"
    write(target, "first")
    before.parent.mkdir()
    target.rename(before)  # the first of the two
    with pytest.raises(KilledError), written_whole(target):
        assert (target / "word").read_text() == "first"
        raise KilledError
    assert (target / "word").read_text() == "first"
    write(target, "second")
    assert (target / "word").read_text() == "second"
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_killed_export_left_does_not_replace_a_whole_one(tmp_path):
    target, before = tmp_path / "it", tmp_path / ".it.partial" / "before"
    write(target, "first")
    before.mkdir(parents=True)
    with pytest.raises(KilledError), written_whole(target):
        raise KilledError
    assert (target / "word").read_text() == "first"
    assert list(tmp_path.iterdir()) == [target]
