from types import SimpleNamespace

import pytest
from torch._C._autograd import DeviceType

from pretrain.profiling.operators import (
    LISTED,
    costliest_operators,
    kernel_name,
    largest,
    operator_name,
)


def test_operators_are_added_up_by_name_and_the_costliest_come_first():
    rows = largest([("a", 1, 100), ("b", 4, 600), ("a", 3, 200), ("c", 2, 100)], steps=2)
    assert [row["name"] for row in rows] == ["b", "a", "c"]
    assert rows[1] == {"name": "a", "calls_per_step": 2, "milliseconds": 0.15, "share": 0.3}


def test_only_so_many_are_listed_and_their_shares_are_of_everything():
    rows = largest([(str(number), 1, 1.0) for number in range(100)], steps=1)
    assert len(rows) == LISTED
    assert sum(row["share"] for row in rows) == pytest.approx(LISTED / 100)


def test_operators_are_listed_under_names_that_group_them():
    assert operator_name("aten::add_") == operator_name("aten::add") == "aten::add"
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    assert operator_name(node) == operator_name("AddmmBackward0") == "autograd's nodes"
    assert operator_name("phase/forward") == "phase/forward, outside of operators"
    assert operator_name("Optimizer.step#AdamW.step") == "Optimizer.step#AdamW.step"


def test_kernels_are_listed_without_their_template_arguments():
    assert kernel_name("void at::native::reduce_kernel<512, 1>(at::Reduce<float>)") == (
        "at::native::reduce_kernel"
    )
    assert kernel_name("sm90_xmma_gemm_bf16bf16_tn") == "sm90_xmma_gemm_bf16bf16_tn"


def event(key, device, *, cpu=0, gpu=0, annotation=False):
    return SimpleNamespace(
        key=key,
        count=1,
        device_type=device,
        is_user_annotation=annotation,
        self_cpu_time_total=cpu,
        self_device_time_total=gpu,
    )


def test_where_a_gpu_was_traced_its_kernels_count_once():
    """The operators carry the time of their kernels, and annotations span them, too."""
    events = [
        event("aten::mm", DeviceType.CPU, cpu=7, gpu=30),
        event("gemm", DeviceType.CUDA, gpu=30),
        event("softmax<4>", DeviceType.CUDA, gpu=10),
        event("phase/forward", DeviceType.CUDA, gpu=40, annotation=True),
    ]
    rows = costliest_operators(SimpleNamespace(key_averages=lambda: events), 1)
    assert [(row["name"], row["share"]) for row in rows] == [("gemm", 0.75), ("softmax", 0.25)]
    (row,) = costliest_operators(SimpleNamespace(key_averages=lambda: events[:1]), 1)
    assert (row["name"], row["milliseconds"]) == ("aten::mm", 0.007)
