import os
import signal
import subprocess
import sys
import time

import pytest

from data_prep.files.workers import TOKENIZER_THREADS, WorkerDied, Workers


def square(number):
    return number * number


def process_number(_):
    return os.getpid()


def threads(_):
    return os.environ.get(TOKENIZER_THREADS)


def die(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("count", [1, 2])
def test_results_come_in_the_order_of_the_tasks(count):
    with Workers(count) as workers:
        assert list(workers.map(square, range(30))) == [n * n for n in range(30)]
        assert list(workers.map(square, [])) == []


def test_one_task_or_one_worker_needs_no_other_process():
    with Workers(2) as workers:
        assert list(workers.map(process_number, [0])) == [os.getpid()]
        assert os.getpid() not in set(workers.map(process_number, range(8)))
    with Workers(1) as workers:
        assert set(workers.map(process_number, range(8))) == {os.getpid()}


def test_no_more_tasks_are_taken_than_workers_can_soon_begin():
    taken = []
    with Workers(2) as workers:
        results = workers.map(square, (taken.append(n) or n for n in range(100)))
        next(results)
        assert len(taken) <= 6
        results.close()


def test_every_worker_keeps_the_tokenizer_to_one_thread(monkeypatch):
    monkeypatch.setenv(TOKENIZER_THREADS, "true")
    for count in (1, 2):
        with Workers(count) as workers:
            assert set(workers.map(threads, range(4))) == {"false"}


def test_a_killed_worker_is_an_error_that_says_what_to_do():
    with Workers(2) as workers, pytest.raises(WorkerDied, match="fewer workers than 2"):
        list(workers.map(die, range(10)))


def test_workers_end_when_the_main_process_is_killed():
    program = (
        "import time\n"
        "from data_prep.files.workers import Workers\n"
        "from tests.data_prep.files.test_workers import process_number\n"
        "if __name__ == '__main__':\n"
        "    with Workers(2) as workers:\n"
        "        print(*set(workers.map(process_number, range(8))), flush=True)\n"
        "        time.sleep(60)\n"
    )
    main = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    numbers = [int(word) for word in main.stdout.readline().split()]
    assert numbers
    main.kill()
    main.wait()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{number}") for number in numbers):
        assert time.monotonic() < deadline, "workers outlive the main process"
        time.sleep(0.05)
