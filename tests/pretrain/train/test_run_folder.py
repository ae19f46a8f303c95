"""The run folder continues a run where it stopped, and refuses where it cannot."""

import errno
import json
import os
import signal
import time

import pytest

from pretrain.config.errors import ConfigError
from pretrain.train import run_folder
from tests.pretrain.conftest import lines

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_lines_after_the_step_and_a_cut_one_are_removed_without_any_room(tmp_path, monkeypatch):
    def refuse(*_):
        raise FULL

    monkeypatch.setattr(run_folder, "save_text", refuse)
    text = "".join(json.dumps({"step": step}) + "\n" for step in (5, 10, 15))
    for name, content in (("metrics.jsonl", text), ("evals.jsonl", text[:-13] + '{"st')):
        (tmp_path / name).write_text(content)
    run_folder.RunRecord(tmp_path).discard_after(10)
    for name in ("metrics.jsonl", "evals.jsonl"):
        assert [row["step"] for row in lines(tmp_path, name)] == [5, 10]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"step": "5"}', '{"step": true}'])
def test_a_whole_line_that_is_damaged_is_named(line, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 5}\n' + line + "\n")
    with pytest.raises(ConfigError, match=r"line 2 of .*metrics.jsonl is damaged: .*; restore it"):
        run_folder.RunRecord(tmp_path).discard_after(10)


def test_a_launch_that_cannot_be_noted_is_one_line_about_the_disk(tmp_path, monkeypatch):
    def refuse(*_):
        raise FULL

    monkeypatch.setattr(run_folder, "append_whole", refuse)
    with pytest.raises(
        ConfigError, match=r"cannot be written \(No space left on device\); free space"
    ):
        run_folder.RunRecord(tmp_path).begin(0, {})


def test_a_second_launch_is_refused_while_the_first_one_lives(tmp_path):
    """A kill of the first frees the folder at once, though processes that it forked live on."""
    ready, tell = os.pipe()
    first = os.fork()
    if first == 0:
        try:
            record = run_folder.RunRecord(tmp_path)
            record.hold()
            worker = os.fork()
            if worker:
                os.write(tell, str(worker).encode())
            time.sleep(60)
        finally:
            os._exit(0)
    os.close(tell)
    worker = int(os.read(ready, 20))
    try:
        with pytest.raises(ConfigError, match="another process is training in .*; stop it, or"):
            run_folder.RunRecord(tmp_path).hold()
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        run_folder.RunRecord(tmp_path).hold()  # at once
    finally:
        os.kill(worker, signal.SIGKILL)
