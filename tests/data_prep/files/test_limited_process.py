import os

import pytest

from data_prep.files.limited_process import LimitedProcess, ProcessDied, TookTooLong


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


def test_a_process_that_died_is_an_error_that_says_what_to_do():
    with LimitedProcess(os._exit) as process, pytest.raises(ProcessDied, match="status 3, prob"):
        process.call(3, 60)
