import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

from data_prep.files.limited_process import Crashed, LimitedProcess, ProcessDied, TookTooLong

MODULE = "data_prep.files.limited_process"


def test_results_and_errors_are_those_of_the_function():
    with LimitedProcess(sum) as process:
        assert [process.call([n, 1], 60) for n in range(100)] == list(range(1, 101))
        with pytest.raises(TypeError, match="unsupported operand"):
            process.call(["a"], 60)
        assert process.call([1], 60) == 1


def test_a_call_in_c_that_handles_no_signal_ends_and_the_next_one_works():
    with LimitedProcess(sum) as process:
        with pytest.raises(TookTooLong):
            process.call(range(10**15), 0.2)
        assert process.call([1, 2], 60) == 3


def test_only_a_process_that_was_killed_is_said_to_lack_memory():
    with LimitedProcess(signal.raise_signal) as process:
        with pytest.raises(ProcessDied, match="killed, probably for lack of memory; .* fewer work"):
            process.call(int(signal.SIGKILL), 60)
        for crash in (signal.SIGSEGV, signal.SIGABRT):
            with pytest.raises(Crashed):
                process.call(int(crash), 60)
    with LimitedProcess(os._exit) as process, pytest.raises(ProcessDied, match="status 3$"):
        process.call(3, 60)
    with LimitedProcess(open) as process, pytest.raises(ProcessDied, match="failed with status 1$"):
        process.call(os.devnull, 60)  # no open file can be sent


def test_what_interrupts_a_call_does_not_wait_for_it(capfd):
    def interrupt(*_):
        raise KeyboardInterrupt

    before, start = signal.signal(signal.SIGALRM, interrupt), time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt), LimitedProcess(time.sleep) as process:
            process.call(0, 60)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            process.call(40, 60)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < 30
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_whose_caller_was_killed_ends_at_once_and_says_nothing(how):
    program = (
        "import time\n"
        f"from {MODULE} import LimitedProcess\n"
        "with LimitedProcess(time.sleep) as process:\n"
        "    process.call(0, 60)\n"
        "    print('ready', flush=True)\n"
        "    process.call(40, 60)\n"
    )
    words, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe) as caller:
        assert caller.stdout.readline() == b"ready\n"
        time.sleep(0.5)
        start = time.monotonic()
        caller.send_signal(how)
        assert caller.communicate() == (b"", b"")  # that is when both have ended
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    ("calls", "status"),
    [(b"", 0), (pickle.dumps(len) + pickle.dumps(("abc", 60)), -signal.SIGPIPE)],
    ids=["before the function", "before the result"],
)
def test_a_process_whose_caller_is_gone_from_the_start_says_nothing(calls, status):
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", MODULE]
    ended = subprocess.run(words, input=calls, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (status, b"")
