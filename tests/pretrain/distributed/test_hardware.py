import itertools

import pytest
import torch

from pretrain.distributed import hardware as module
from pretrain.distributed.hardware import free_memory_bytes, measured_peak_flops, peak_flops


@pytest.fixture
def measured(monkeypatch):
    """Instead of a measurement on a GPU: what would have been measured."""
    calls = []
    monkeypatch.setattr(module, "measured_peak_flops", lambda *words: calls.append(words) or 5e12)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: calls.append("forgotten"))
    return calls


def on_gpu(monkeypatch, name, dtype):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    return peak_flops("cuda", dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "rate"),
    [
        ("NVIDIA H200", torch.bfloat16, 989e12),
        ("NVIDIA H100 PCIe", torch.float16, 756e12),
        ("NVIDIA A100-SXM4-80GB", torch.bfloat16, 312e12),
        ("NVIDIA A10", torch.bfloat16, 125e12),
        ("Tesla T4", torch.float16, 65e12),
    ],
)
def test_a_known_gpu_has_the_dense_rate_of_its_datasheet(monkeypatch, measured, name, dtype, rate):
    found = on_gpu(monkeypatch, name, dtype)
    assert found.flops_per_second == rate and measured == []
    assert found.source == f"NVIDIA datasheet, dense, {name}"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("NVIDIA Unheard Of", torch.bfloat16),
        ("NVIDIA H200 MIG 1g.18gb", torch.bfloat16),  # a slice of one
        ("NVIDIA A10G", torch.bfloat16),  # another chip than A10 and A100
        ("NVIDIA H200", torch.float32),
        ("Tesla T4", torch.bfloat16),  # its tensor cores have none
    ],
)
def test_what_no_datasheet_tells_is_measured(monkeypatch, measured, name, dtype):
    found = on_gpu(monkeypatch, name, dtype)
    assert found.flops_per_second == 5e12
    (words, end) = measured  # the memory of the products is not that of the run
    assert words[:2] == ("cuda", dtype) and end == "forgotten"
    assert found.source.startswith(f"measured at the start: {str(dtype)[6:]} product of")


def test_the_fastest_product_counts_and_the_first_only_warms_up(monkeypatch):
    clock = itertools.accumulate([0, 0.1, 0, 0.4, 0, 0.2])  # durations 0.1, 0.4 and 0.2
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    assert measured_peak_flops("cpu", torch.float32, 8, 4, 2) == pytest.approx(2 * 8 * 4 * 2 / 0.2)


def test_a_cpu_is_measured_in_the_type_of_the_run():
    torch.set_num_threads(1)
    found = peak_flops("cpu", torch.float32)
    assert "float32 product of 4096 x 512 and 512 x 2048" in found.source
    # A core adds and multiplies once a cycle at least, and no machine reaches a petaflop in fp32.
    assert 1e8 < found.flops_per_second < 1e15


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
        (group / "memory.current").write_text(f"{3 << 20}\n")
        files = (
            f"inactive_file {1 << 20}\nslab 7\nactive_file {1 << 20}\n"  # which the kernel drops
        )
        (group / "memory.stat").write_text(f"file {2 << 20}\n{files}")
    assert free_memory_bytes(tmp_path) == free
