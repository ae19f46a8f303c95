"""What asks tupelo to stop is passed on to the process that it has started."""

import os
import signal
import time

import psutil
import pytest

from pretrain.__main__ import main
from pretrain.distributed.signals import ECHO_SECONDS
from pretrain.train.launching.child import Child, Children, last_line, run_child, trainer_words
from tests.forked_command import Started
from tests.pretrain.conftest import lines
from tests.pretrain.distributed.test_signals import has_step, step_of

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
BUILD = ("train", "tiny_cpu", "--corpus", "text.txt")


def end(process):
    """Return exit status and last line of stderr."""
    _, errors = process.communicate(timeout=30)
    return process.returncode, (errors.splitlines() or [""])[-1]


def test_a_signal_ends_the_preparation_of_data(stubs):
    """As the terminal does it, which signals the whole group of tupelo."""
    process = stubs.start_waiting(*BUILD, STUB_WAITS="prepare", STUB_STATUS="5")
    os.killpg(process.pid, signal.SIGINT)
    assert end(process) == (5, "stopped; the same command continues from here")
    assert stubs.calls("heard") == ["heard INT"]
    assert not stubs.calls(" train ")


def test_a_build_that_ends_well_when_asked_to_stop_is_not_followed_by_training(stubs):
    process = stubs.start_waiting(*BUILD, STUB_WAITS="prepare")
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 1
    assert not stubs.calls(" train ")


def test_a_signal_reaches_the_ranks_and_not_their_launcher(stubs, shards):
    """The launcher is two processes, one below the other, and would kill the ranks in time."""
    stubs.gpus(2)
    stubs.launcher_with_two_ranks()
    process = stubs.start_waiting(*train(shards))
    os.killpg(process.pid, signal.SIGHUP)
    assert end(process)[0] == 0
    assert stubs.calls("heard") == ["heard SIGUSR1"] * 2


def test_a_queue_that_signals_every_process_stops_the_ranks_and_not_the_launcher(stubs, shards):
    stubs.gpus(2)
    stubs.launcher_with_two_ranks()
    process = stubs.start_waiting(*train(shards))
    for child in [*psutil.Process(process.pid).children(recursive=True), process]:
        child.send_signal(signal.SIGTERM)
    assert end(process)[0] == 0
    assert len(stubs.calls("heard")) == 2  # the signal, or the request that follows it


def test_on_several_machines_the_launcher_itself_gets_the_signal(stubs, shards):
    (stubs.folder / "hosts").write_text("one slots=4\ntwo slots=4\n")
    words = (*train(shards), "--hostfile", "hosts")
    process = stubs.start_waiting(*words, STUB_WAITS="train", STUB_STATUS="7")
    process.send_signal(signal.SIGUSR1)
    assert end(process)[0] == 7
    assert stubs.calls("heard") == ["heard TERM"]  # launchers know no others


def test_ranks_that_start_after_the_signal_are_asked_again(stubs, shards):
    stubs.gpus(2)
    stubs.launcher_with_two_ranks(after_seconds=2)
    process = stubs.start_waiting(*train(shards))
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 0
    assert stubs.calls("heard") == ["heard SIGUSR1"] * 2


def test_a_second_signal_ends_a_launcher_whose_ranks_do_not_hear(stubs, shards):
    stubs.gpus(2)
    process = stubs.start_waiting(*train(shards), STUB_WAITS="train")
    process.send_signal(signal.SIGTERM)
    time.sleep(1.5 * ECHO_SECONDS)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 128 + signal.SIGKILL


def test_a_rank_can_be_stopped_before_it_trains(monkeypatch):
    """The launcher blocks the signals of a queue, and its ranks inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS[1:])
    monkeypatch.setenv("RANK", "0")
    try:
        with pytest.raises(SystemExit):
            main(["train", "--help"])
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(SIGNALS[1:])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_child_reads_nothing_and_has_a_status_as_in_a_shell(capfd):
    ended = run_child(Child(["bash", "-c", "read line || echo nothing; kill -TERM $$"]))
    assert ended == (128 + signal.SIGTERM, False)
    assert capfd.readouterr().out == "nothing\n"


def test_a_file_of_the_user_is_not_imported_in_place_of_ours(tmp_path, monkeypatch):
    """The child is started in the folder of the user, and is not installed in a checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name in ("pretrain", "random", "profile"):
        (tmp_path / f"{name}.py").write_text("import sys; sys.exit(9)\n")
    assert run_child(Child(trainer_words("train", "--help"))) == (0, False)


def test_the_handlers_of_before_come_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    assert run_child(Child(["true"])) == (0, False)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_signal_just_before_the_child_starts_reaches_it():
    """A sweep decides to start a run, is asked to stop, and starts it."""
    with Children() as children:
        os.kill(os.getpid(), signal.SIGTERM)
        children.start(Child(["sleep", "30"]))
        _, status = children.next_ended()
    assert (status, children.stopped) == (128 + signal.SIGTERM, True)


def test_the_reason_of_an_end_is_the_last_line_of_a_rank_and_not_of_the_launcher(tmp_path):
    """As the launcher of DeepSpeed 0.19 writes it."""
    log, now = tmp_path / "a.log", "[2026-11-23 00:28:52,836]"
    assert last_line(log) == "it wrote nothing"
    log.write_text(
        f"{now} [INFO] [launch.py:245:main] process 7 spawned with command: ['python']\n"
        "error: no such thing\n\n"
        f"{now} [INFO] [launch.py:253:sigkill_handler] Killing subprocess 7\n"
        f"{now} [ERROR] [launch.py:259:sigkill_handler] ['python'] exits with return code = 1\n"
    )
    assert last_line(log) == "error: no such thing"


@pytest.mark.slow("the stub of the launcher has its structure, and starts sooner")
@pytest.mark.ranks
def test_two_ranks_below_the_real_launcher_save_and_the_status_is_0(
    command, stubs, tmp_path, monkeypatch
):
    """DeepSpeed starts as many ranks on a CPU as it is asked for."""
    stubs.gpus(2)
    hiding = "#!/usr/bin/env bash\n[[ -z ${LOCAL_RANK:-} ]] || exit 1\n"  # or ranks refuse the CPU
    stubs.program("nvidia-smi", hiding + (stubs.bin / "nvidia-smi").read_text())
    monkeypatch.setenv("PATH", str(stubs.bin), prepend=":")
    for name in ("RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "run"
    words = command.words("--run-folder", folder, "--steps", 1_000_000, "--gpus", 2)
    process = command.start(words)
    assert Started([process], []).wait_until(lambda: has_step(folder, 5))
    for child in [*psutil.Process(process.pid).children(recursive=True), process]:
        child.send_signal(signal.SIGTERM)  # as a queue does
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors[-3000:]
    assert (folder / "checkpoints" / f"step_{step_of(output, folder):08d}").is_dir()
    assert lines(folder, "launches.jsonl")[0]["world_size"] == 2


def train(shards):
    sizes = ("--data.sequence_length", "32", "--model.vocabulary_size", "256")
    return ("train", "tiny_cpu", "--data.shards", shards, *sizes, "--run-folder", "f")
