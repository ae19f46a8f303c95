import pytest

from data_prep.shards.format import open_shards
from pretrain.config.recipe import load_settings


@pytest.fixture(scope="module")
def opened(shards):
    return open_shards(shards)


def settings(shards, *words):
    return load_settings("tiny_cpu", ["--data.shards", str(shards), *words])
