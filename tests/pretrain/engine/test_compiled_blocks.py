"""Blocks compiled: how many graphs a run needs, and a machine on which nothing compiles."""

import functools
import subprocess

import pytest
import torch
from torch import nn

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.distributed.ranks import Ranks, start_ranks
from pretrain.engine import execution
from pretrain.engine.execution import build_model
from pretrain.model.blocks import Block
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.kernel_check import disagreement_with_eager
from pretrain.model.kernels import cross_entropy
from pretrain.model.objectives.masked_language_model import MaskedLanguageModel
from tests.pretrain.engine import training_case as case
from tests.pretrain.engine.test_execution import loss_and_gradients

ALONE = Ranks(0, 1, "cpu")
# As on a GPU: without our kernels for CPUs the loss is compiled, too.
ON = ("--engine.compile_blocks", "on", "--engine.cpu_kernels", "off")


@pytest.fixture
def graphs(monkeypatch):
    """A list that grows with each graph; the graphs run as they are."""
    found = []

    def backend(graph, inputs):
        found.append(len(inputs))
        return graph.forward

    monkeypatch.setattr(
        Block, "compile", functools.partialmethod(nn.Module.compile, backend=backend)
    )
    loss = torch.compile(cross_entropy._turn_whole, dynamic=False, fullgraph=True, backend=backend)
    monkeypatch.setattr(cross_entropy, "_compiled_turn", lambda: loss)
    monkeypatch.setattr(execution, "disagreement_with_eager", lambda *_, **__: None)
    return found


@pytest.mark.parametrize(("attention", "positions"), [("eager", "tupe-a"), ("sdpa", "shaw")])
def test_all_blocks_share_their_graphs_whichever_of_them_run(graphs, attention, positions):
    """16 patterns of kept blocks, as many scales, two graphs: the last to run has its own."""
    torch._dynamo.reset()
    settings = load_settings(
        "tiny_cpu", ["--model.num_layers", "4", "--model.positions", positions]
    ).model
    models = []
    for compiles in (False, True):
        torch.manual_seed(0)
        plan = ExecutionPlan(attention=attention, compiles_blocks=compiles)
        models.append(MaskedLanguageModel(settings, plan))
    for pattern in range(16):
        scales = [float(pattern >> block & 1) * (1 + pattern / 7) for block in range(4)]
        plain, compiled = (loss_and_gradients(model, scales) for model in models)
        torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-6)
    assert len(graphs) == 2 + 1  # and the loss


def test_a_run_needs_five_graphs_however_long_it_is(graphs):
    """Training and evaluation, each with the last block and the others; the loss of both."""
    dropout = ("--model.dropout", "0.1", "--model.attention_dropout", "0.1")
    settings = case.case_settings(*ON, "--engine.recompute_blocks", "true", *dropout)
    engine = case.build_engine(settings, start_ranks(), "zero0_bf16_autocast")
    for steps in (range(4), range(4, 6)):
        case.train_steps(engine, settings, steps)
        engine.evaluate([case.micro_batch(0, 0), case.micro_batch(0, 1)])
        assert len(graphs) == 4 + 1


def test_a_machine_that_compiles_nothing_runs_blocks_as_they_are_and_says_why(monkeypatch):
    """What Triton raises without Python.h, deep in the chain of torch's own errors."""

    def backend(graph, inputs):
        raise subprocess.CalledProcessError(1, ["/usr/bin/gcc", "main.c"])

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    with monkeypatch.context() as patched:  # as on a GPU
        patched.setattr(execution, "_compiles_blocks", lambda *_: True)
        found = build_model(load_settings("tiny_cpu", []), {}, ALONE)
    assert not found.execution.compiles_blocks
    assert "blocks not compiled: CalledProcessError: Command" in found.execution.describe()
    loss_and_gradients(found, [1.2, 1.0])
    with pytest.raises(ConfigError, match="compile_blocks='on' .*: CalledProcess.*; leave it"):
        build_model(load_settings("tiny_cpu", list(ON)), {}, ALONE)


@pytest.mark.slow("torch looks for compilers for seconds")
def test_torch_without_a_compiler_is_noticed_at_the_start(monkeypatch):
    """torch's own compilation, and its own error."""
    import torch._inductor.config as inductor

    monkeypatch.setenv("CXX", "no-such-compiler")
    model = load_settings("tiny_cpu", []).model
    with inductor.patch({"cpp.cxx": ("no-such-compiler",), "force_disable_caches": True}):
        found = disagreement_with_eager(
            "eager", model, length=32, device="cpu", dtype=torch.float32, compiles=True
        )
    assert "no-such-compiler" in found or "No working C++ compiler" in found
