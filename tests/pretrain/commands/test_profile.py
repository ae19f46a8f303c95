"""The command `profile`, as a user starts it."""

import gzip
import json

import pytest

from pretrain.__main__ import main
from pretrain.config.errors import ConfigError

DROPS = ("--layer_drop.schedule", "progressive", "--layer_drop.theta_bar", "0.1")


def profiled(command, folder, *words, **launcher):
    """Profile tiny_cpu, check that all went well and return what is printed."""
    words = ("profile", "tiny_cpu", "--engine.ds_config", "zero1_fp32", "--to", folder, *words)
    status, output, errors = command.run(list(map(str, words)), **launcher)
    assert status == 0, errors[-3000:]
    return output


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile") / "new" / "folder"
    # Of the recipe's own corpus there may be shards in this checkout.
    return folder, profiled(command, folder, "--corpus", folder / "text.txt", "--traced", 3)


def test_the_trace_can_be_read_and_names_our_phases(whole):
    folder, output = whole
    with gzip.open(folder / "trace.json.gz", "rt") as file:
        spans = [event.get("name") for event in json.load(file)["traceEvents"]]
    for name in ("data", "forward", "backward", "optimizer"):
        assert f"phase/{name}" in spans
    assert spans.count("phase/forward") == 3 * 2  # steps x micro-batches
    assert any(name.startswith("aten::") for name in spans if name)
    assert "tiny_cpu: 3 steps of random ids, 1 rank(s)" in output
    assert all(f"phase/{name}" in output for name in ("forward", "backward"))
    assert output.count("aten::") > 5
    assert f"{folder / 'trace.json.gz'}; open it in https://ui.perfetto.dev" in output


def test_real_rows_are_used_where_there_are_shards(command, tmp_path, shards):
    words = ("--data.shards", shards, "--traced", 1, *DROPS)
    assert f"1 steps of sequences of {shards}" in profiled(command, tmp_path, *words)


def test_a_profile_that_cannot_be_is_refused_in_one_line(monkeypatch):
    # DeepSpeed remembers the group of this process as long as it lives.
    monkeypatch.setattr("pretrain.distributed.failures.stop_ranks", lambda: None)
    with pytest.raises(ConfigError, match="there are no shards in nowhere") as refused:
        main(["profile", "tiny_cpu", "--data.shards", "nowhere"])
    assert "\n" not in str(refused.value)
