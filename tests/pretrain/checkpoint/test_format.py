"""A checkpoint is read whole, or refused by name."""

import errno
import math
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from pretrain.checkpoint import format as checkpoint_format
from pretrain.checkpoint.folders import (
    checkpoint_folder,
    checkpoints_of,
    identity_of,
    keep_identity,
    kept,
    newest_checkpoint,
    newest_sound_checkpoint,
    remove_remains,
)
from pretrain.checkpoint.format import (
    Checkpoint,
    CheckpointError,
    Content,
    EngineCounters,
    Piece,
    complete,
    load_weights,
    remove,
    write_part,
)
from pretrain.config.errors import ConfigError
from tests.pretrain.checkpoint.forged import reseal

SHAPES = {"table": [5, 4], "bias": [3]}
STATE = {"table": ["momentum_buffer"], "bias": ["exp_avg", "exp_avg_sq"]}
WHOLE = {
    f"{kind}/{name}": torch.arange(20.0)[: 20 if name == "table" else 3] + 100 * number
    for name in SHAPES
    for number, kind in enumerate(("weight", *STATE[name]))
}
# Three ranks, of which one has nothing of the bias and none has a whole table.
RANKS = [
    {"table": Piece(0, 7), "bias": Piece(0, 1)},
    {"table": Piece(7, 6)},
    {"table": Piece(13, 7), "bias": Piece(1, 2)},
]


def write(run, step=5, progress=None):
    partial = checkpoint_folder(run, step).with_suffix(".partial")
    partial.mkdir(parents=True)
    parts = {}
    for rank, pieces in enumerate(RANKS):
        tensors = {
            f"{kind}/{name}": WHOLE[f"{kind}/{name}"][piece.start : piece.start + piece.size]
            for name, piece in pieces.items()
            for kind in ("weight", *STATE[name])
        }
        parts |= write_part(partial, rank, tensors, pieces)
    content = Content(
        step=step,
        world_size=3,
        shapes=SHAPES,
        optimizer_state=STATE,
        parts=parts,
        engine=EngineCounters(adam_steps=4),
        progress=progress or {},
    )
    return complete(partial, content)


def test_any_range_of_any_kind_is_read_across_the_files(tmp_path):
    checkpoint = Checkpoint(write(tmp_path))
    checkpoint.verify()
    for key, whole in WHOLE.items():
        kind, name = key.split("/")
        for start in range(len(whole) + 1):
            for end in range(start, len(whole) + 1):
                found = checkpoint.read(kind, name, Piece(start, end - start))
                assert torch.equal(found, whole[start:end])
    weights = load_weights(checkpoint.folder)
    assert weights.keys() == SHAPES.keys()
    assert torch.equal(weights["table"], WHOLE["weight/table"].view(5, 4))


def test_a_checkpoint_of_format_1_holds_the_moments_of_adamw(tmp_path):
    """It does not say so; all that were written before the names were recorded do."""
    folder = write(tmp_path)

    def as_format_1(content):
        content["format"] = 1
        del content["optimizer_state"]

    reseal(folder, as_format_1)
    content = Checkpoint(folder).content
    assert content.optimizer_state == dict.fromkeys(SHAPES, ["exp_avg", "exp_avg_sq"])


def test_a_folder_counts_only_when_it_is_complete(tmp_path):
    (checkpoint_folder(tmp_path, 9).with_suffix(".partial")).mkdir(parents=True)
    (checkpoint_folder(tmp_path, 8).with_suffix(".removed")).mkdir()
    assert checkpoints_of(tmp_path) == []
    folder = write(tmp_path, 5)
    assert checkpoints_of(tmp_path) == [folder]
    stranger = folder.with_name("step_another1")
    stranger.mkdir()
    assert checkpoints_of(tmp_path) == [folder]
    stranger.rmdir()
    remove_remains(tmp_path)
    assert list(folder.parent.iterdir()) == [folder]


def flip(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


DAMAGES = {  # a file, or the folder; what becomes of it; how it is refused
    "a flipped bit": ("part_00001.safetensors", flip, "has another sha256"),
    "a missing file": ("part_00000.safetensors", Path.unlink, "cannot be read: No such file"),
    "no description": ("checkpoint.json", Path.unlink, "cannot be read: No such file"),
    "another number": (
        "checkpoint.json",
        lambda file: file.write_text(re.sub('("adam_steps":) 4', r"\1 5", file.read_text())),
        "has another sha256",
    ),
    "a gap": (
        "",
        lambda folder: reseal(folder, lambda content: content["parts"].popitem()),
        "its files do not hold",
    ),
    "the name of another step": (
        "",
        lambda folder: reseal(folder, lambda content: content.update(step=9)),
        "it is the checkpoint of step 9",
    ),
    "deep nesting": (
        "checkpoint.json",
        lambda file: file.write_text("[" * 100_000),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_checkpoint_is_refused_saying_how_and_the_one_before_is_taken(
    damage, tmp_path, capsys
):
    name, spoil, complaint = DAMAGES[damage]
    older, newer = write(tmp_path, 5), write(tmp_path, 10)
    spoil(newer / name)
    with pytest.raises(CheckpointError, match="step_00000010 is damaged") as refusal:
        load_weights(newer)
    assert f"{name} {complaint}".strip() in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1
    if damage == "a gap":  # which no damage to a file leaves: it is seen when it is read
        return
    assert newest_sound_checkpoint(tmp_path) == older
    assert capsys.readouterr().err == (
        f"warning: {refusal.value}; it was renamed to step_00000010.damaged, and the run resumes "
        f"from {older}\n"
    )
    assert checkpoints_of(tmp_path) == [older]
    assert newer.with_suffix(".damaged").is_dir()


def test_a_checkpoint_of_another_run_is_not_resumed_from(tmp_path, capsys):
    """Nor is one of this run taken for one of another, whatever becomes of its launches."""
    launches, file = tmp_path / "launches.jsonl", tmp_path / "identity"
    launches.write_text('{"at": "then"}\n')
    identity, _ = identity_of(tmp_path)  # of a run that has no file for it
    keep_identity(tmp_path)
    launches.write_text('{"at": "Then"}\n')
    assert identity_of(tmp_path) == (identity, file)
    for step, run in ((5, identity), (10, "of another")):
        reseal(write(tmp_path, step), lambda content, run=run: content.update(run=run))
    assert newest_sound_checkpoint(tmp_path) == checkpoint_folder(tmp_path, 5)
    assert f"by another run, of another, than the {identity} of {file}" in capsys.readouterr().err
    file.write_text("changed by hand\n")
    with pytest.raises(CheckpointError, match=f"restore {file} from a copy"):
        newest_sound_checkpoint(tmp_path)
    assert checkpoints_of(tmp_path) == [checkpoint_folder(tmp_path, 5)]
    file.unlink()
    launches.unlink()
    assert newest_sound_checkpoint(tmp_path)  # there is nothing to compare with


def test_what_may_not_be_read_is_not_damaged(tmp_path, monkeypatch):
    folders = [write(tmp_path, step) for step in (5, 10)]

    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    for owner, name in ((checkpoint_format, "sha256_of"), (Path, "read_bytes")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, refuse)
            with pytest.raises(ConfigError, match="_00000010/.*Permission denied; ask its owner"):
                newest_sound_checkpoint(tmp_path)
    assert checkpoints_of(tmp_path) == folders


def test_its_files_have_the_permissions_of_other_files(tmp_path):
    (tmp_path / "other").touch()
    expected = (tmp_path / "other").stat().st_mode
    assert {file.stat().st_mode for file in write(tmp_path).iterdir()} == {expected}


def test_what_another_version_wrote_is_refused_and_not_taken_for_damaged(tmp_path):
    folders = [write(tmp_path, step) for step in (5, 10)]
    reseal(folders[1], lambda content: content.update(format=3, more=1))
    with pytest.raises(ConfigError, match="has format 3, this version of the code reads 1 and 2"):
        newest_sound_checkpoint(tmp_path)
    assert checkpoints_of(tmp_path) == folders


def test_a_held_out_loss_that_is_not_finite_is_saved_as_such(tmp_path):
    folder = write(tmp_path, progress={"held_out_losses": [math.nan, math.inf, 2.5]})
    losses = Checkpoint(folder).content.progress["held_out_losses"]
    assert math.isnan(losses[0]) and losses[1:] == [math.inf, 2.5]


def test_if_all_are_damaged_none_is_renamed_and_all_are_named(tmp_path):
    folders = [write(tmp_path, step) for step in (5, 10)]
    for folder in folders:
        (folder / "part_00000.safetensors").unlink()
    with pytest.raises(CheckpointError, match="has no sound checkpoint: .*_00000010.*_00000005"):
        newest_sound_checkpoint(tmp_path)
    assert checkpoints_of(tmp_path) == folders


def test_a_checkpoint_that_is_a_link_to_another_disk_is_removed_as_a_link(tmp_path):
    folder, elsewhere = write(tmp_path / "run"), tmp_path / "elsewhere"
    shutil.move(folder, elsewhere)
    folder.symlink_to(elsewhere)
    folder.with_suffix(".removed").symlink_to(elsewhere)  # left by an interrupted removal
    remove(folder)
    assert list(folder.parent.iterdir()) == []
    assert (elsewhere / "checkpoint.json").is_file()


def test_without_any_checkpoint_a_run_begins_at_its_beginning(tmp_path):
    assert newest_sound_checkpoint(tmp_path) is None
    with pytest.raises(ConfigError, match="is not a run folder: it has no run.json"):
        newest_checkpoint(tmp_path)
    (run := tmp_path / "bert_a-seed1").mkdir()
    (run / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match=f"; give one of the runs in it, such as {run}$"):
        newest_checkpoint(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match="has no checkpoint yet"):
        newest_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"keep_last": None}, {10, 20, 30, 40, 50, 60}),
        ({"keep_last": 2}, {50, 60}),
        ({"keep_last": 1, "pinned": (10, 30, 99)}, {10, 30, 60}),
    ],
)
def test_the_last_ones_and_pinned_ones_stay(rule, expected):
    assert kept(range(10, 61, 10), **{"pinned": (), **rule}) == expected
