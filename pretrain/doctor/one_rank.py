"""One of the processes that ranks.py starts: `one_rank BACKEND HOST PORT RANK WORLD_SIZE`."""

import datetime
import json
import statistics
import sys
import time

import torch
import torch.distributed as distributed

from pretrain.doctor.ranks import LIMIT_SECONDS, up

LARGE = 4 * 2**20  # numbers, 16 MiB in fp32: a bucket of gradients
REPETITIONS = 20
LIMIT = datetime.timedelta(seconds=LIMIT_SECONDS)


def main(words: list[str]) -> None:
    """Add up numbers with the other ranks; the first one prints how long that takes.

    Raises:
        ArithmeticError: the sum is wrong.
    """
    backend, host = words[:2]
    port, rank, world_size = map(int, words[2:])
    store = distributed.TCPStore(host, port, is_master=False, timeout=LIMIT)  # type: ignore[attr-defined]
    store.set(up(rank), "")
    if backend == "nccl":
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=LIMIT
    )
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    numbers = torch.full((LARGE,), rank + 1.0, device=device)
    distributed.all_reduce(numbers)
    expected = world_size * (world_size + 1) / 2
    if not bool((numbers == expected).all()):
        raise ArithmeticError(f"the sum over the ranks is wrong: not {expected:g} everywhere")
    latency = statistics.median(_seconds(numbers[:1]) for _ in range(REPETITIONS))
    bytes_per_second = LARGE * 4 / min(_seconds(numbers) for _ in range(3))
    if rank == 0:
        print(json.dumps({"latency_seconds": latency, "bytes_per_second": bytes_per_second}))
    distributed.destroy_process_group()


def _seconds(numbers: torch.Tensor) -> float:
    distributed.barrier()
    started = time.perf_counter()
    distributed.all_reduce(numbers)
    if numbers.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    main(sys.argv[1:])
