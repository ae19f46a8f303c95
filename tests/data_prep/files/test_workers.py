import os
import signal

import pytest

from data_prep.files import processors
from data_prep.files.workers import TOKENIZER_THREADS, WorkerDied, Workers


def described(number):
    """Return a result, the process that computed it, and what its tokenizer is told."""
    return number * number, os.getpid(), os.environ.get(TOKENIZER_THREADS)


def die(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_workers_keep_the_order_run_not_far_ahead_and_are_missed_when_killed(monkeypatch):
    monkeypatch.setenv(TOKENIZER_THREADS, "true")
    taken = []
    with Workers(2) as workers:
        assert list(workers.map(described, [])) == []
        assert [process for _, process, _ in workers.map(described, [0])] == [os.getpid()]
        results = workers.map(described, (taken.append(n) or n for n in range(30)))
        found = [next(results)]
        assert len(taken) <= 6
        found += results
        assert [result for result, _, _ in found] == [n * n for n in range(30)]
        assert os.getpid() not in {process for _, process, _ in found}
        assert {threads for _, _, threads in found} == {"false"}
        with pytest.raises(WorkerDied, match="fewer processors than 2"):
            list(workers.map(die, range(10)))


def test_one_worker_is_this_process(monkeypatch):
    monkeypatch.setenv(TOKENIZER_THREADS, "true")
    with Workers(1) as workers:
        assert list(workers.map(described, range(3))) == [
            (n * n, os.getpid(), "false") for n in range(3)
        ]


@pytest.mark.parametrize(("share", "expected"), [("150000 100000", 2), ("max 100000", 8), ("", 8)])
def test_a_container_has_the_processors_whose_time_it_has(tmp_path, monkeypatch, share, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8))
    monkeypatch.setattr(processors, "CPU_SHARE", tmp_path / "cpu.max")
    (tmp_path / "cpu.max").write_text(share)
    assert processors.cpu_count() == expected
