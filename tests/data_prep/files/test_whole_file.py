"""A file of somebody else is looked at before it is read."""

import os

import pytest
from pydantic import TypeAdapter

from data_prep.tokenizer.describe import TokenizerError
from data_prep.tokenizer.load import load_tokenizer
from finetune.results.result import read_json
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object


def sparse(file):
    file.touch()
    os.truncate(file, 1 << 40)


@pytest.mark.parametrize(
    ("make", "reason"), [(sparse, "bytes are more than"), (os.mkfifo, "it is a pipe or a device")]
)
@pytest.mark.parametrize(
    ("read", "error"),
    [
        (read_json_object, ConfigError),
        (lambda file: read_json(file, TypeAdapter(dict), "remove it"), ConfigError),
        (lambda file: load_tokenizer(str(file)), TokenizerError),
    ],
)
def test_sparse_files_and_pipes_are_refused_in_one_line(tmp_path, make, reason, read, error):
    file = tmp_path / "tokenizer.json"
    make(file)
    with pytest.raises(
        error, match=reason if file.is_file() else f"{reason}|no tokenizer"
    ) as found:
        read(file)
    assert "\n" not in str(found.value) and str(file) in str(found.value)
