import pytest

from pretrain.profiling.free_memory import free_memory_bytes


@pytest.mark.parametrize(
    ("limit", "free"),
    [(None, 8 << 20), ("max", 8 << 20), ("6291456", 5 << 20), ("1" + "0" * 9, 8 << 20)],
)
def test_the_limit_of_a_container_counts_where_it_is_tighter(tmp_path, limit, free):
    group = tmp_path / "sys/fs/cgroup"
    for folder in (tmp_path / "proc", group):
        folder.mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:    8192 kB\n")
    if limit is not None:
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text(f"{1 << 20}\n")
    assert free_memory_bytes(tmp_path) == free
