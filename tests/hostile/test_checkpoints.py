"""Checkpoints of others, or of a disk that fails."""

import functools
import hashlib

import pytest
import torch

from pretrain.checkpoint.format import CheckpointError, load_weights
from pretrain.config.errors import ConfigError
from tests.hostile.mutations import mutated_bytes
from tests.hostile.property import check_file
from tests.pretrain.checkpoint.forged import reseal
from tests.pretrain.checkpoint.test_format import WHOLE, write

PART = "part_00001.safetensors"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write(tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("name", ["checkpoint.json", PART])
def test_a_file_that_a_disk_changed_is_refused_or_makes_no_difference(checkpoint, name):
    def check(weights):
        assert torch.equal(weights["table"].view(-1), WHOLE["weight/table"])
        assert torch.equal(weights["bias"], WHOLE["weight/bias"])

    naming = [str(checkpoint), "checkpoint"]
    read = functools.partial(load_weights, checkpoint)
    check_file(checkpoint / name, mutated_bytes, read, ConfigError, naming=naming, then=check)


def test_a_pickle_in_the_place_of_a_part_is_not_opened(tmp_path):
    """Loading it would create a file; being refused, it does not."""
    folder = write(tmp_path)

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    part = folder / "part_00001.safetensors"
    torch.save({"weight/table": Bomb()}, part)

    def seal(content):
        entry = content["parts"][part.name]
        entry["sha256"] = hashlib.sha256(part.read_bytes()).hexdigest()
        entry["size_bytes"] = part.stat().st_size

    reseal(folder, seal)
    with pytest.raises(CheckpointError, match="part_00001.safetensors: "):
        load_weights(folder)
    assert not (tmp_path / "exploded").exists()
