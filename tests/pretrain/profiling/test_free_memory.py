"""The memory that is left, on simulated machines: folders for /proc and /sys."""

import pytest

from pretrain.profiling.free_memory import free_memory_bytes

GIB = 2**30


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8 * GIB),
        ({"memory.max": 5 * GIB, "memory.current": 2 * GIB}, 3 * GIB),
        ({"memory.max": "max", "memory.current": 2 * GIB}, 8 * GIB),
        ({"memory/memory.limit_in_bytes": 4 * GIB, "memory/memory.usage_in_bytes": GIB}, 3 * GIB),
        ({"memory/memory.limit_in_bytes": 2**63 - 4096}, 8 * GIB),
        ({"job/7/memory.max": 20 * GIB, "job/memory.max": 6 * GIB}, 6 * GIB),
        ({"memory.max": GIB, "memory.current": 2 * GIB}, 0),
        (
            {
                **{"memory.max": 5 * GIB, "memory.current": 5 * GIB},
                "memory.stat": f"anon {GIB}\nfile {4 * GIB}\ninactive_file {3 * GIB}",
            },
            3 * GIB,
        ),
        (
            {
                "memory/memory.limit_in_bytes": 4 * GIB,
                "memory/memory.usage_in_bytes": 4 * GIB,
                "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}",
            },
            GIB,
        ),
    ],
)
def test_the_tightest_limit_around_the_process_counts(tmp_path, files, free):
    written = {
        "proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB",
        "proc/self/cgroup": "0::/job/7",
        **{f"sys/fs/cgroup/{name}": value for name, value in files.items()},
    }
    for name, value in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n")
    assert free_memory_bytes(tmp_path) == free
