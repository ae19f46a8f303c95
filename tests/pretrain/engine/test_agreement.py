"""Two ranks of which one cannot do what the other can: both take the same way, or both refuse."""

import json

import pytest

from pretrain.config.errors import ConfigError
from pretrain.distributed.ranks import Ranks
from pretrain.engine import agreement
from pretrain.engine.agreement import first_problem
from tests.forked_command import run_module

PAIR = Ranks(0, 2, "cpu")


def test_the_first_rank_with_a_problem_is_named_unless_all_have_it(monkeypatch):
    def found(*by_rank):
        monkeypatch.setattr(agreement, "from_all_ranks", lambda value, ranks: list(by_rank))
        return first_problem(by_rank[0], PAIR)

    assert found(None, None) is None
    assert found("broken", "broken") == "broken"
    assert found(None, "broken") == "broken (on rank 1)"
    assert found("slow", "broken") == "slow (on rank 0)"


CASES = {
    # name: (settings, what fails on rank 1)
    "nothing": ([], None),
    "check": ([], "check"),
    "build": ([], "build"),
    "compile": ([], "compile"),
    "check, asked for": (["--engine.cpu_kernels", "on"], "check"),
    "build, asked for": (["--engine.cpu_kernels", "on"], "build"),
    "compile, asked for": (["--engine.compile_blocks", "on"], "compile"),
}


def main():
    """Build the model of each case on this rank, and print what happened."""
    from pretrain.config.recipe import load_settings
    from pretrain.distributed.ranks import from_all_ranks, start_ranks, stop_ranks
    from pretrain.engine import execution
    from pretrain.model.kernels.cpu_kernels import KernelError

    ranks, outcomes = start_ranks(), {}

    def patch(failing):
        fails = ranks.rank == 1 and failing or ""

        def build():
            if fails == "build":
                raise KernelError("g++ fails")

        def disagreement(*_, compiles, **__):
            if compiles:
                return "there is no gcc" if fails == "compile" else None
            return "broken" if fails == "check" else None

        execution.obstacle_to_cpu_kernels = lambda: None
        execution.load_cpu_kernels = build
        execution.disagreement_with_eager = disagreement

    compiles = execution._compiles_blocks
    for name, (words, failing) in CASES.items():
        patch(failing)
        by_default = name == "compile"
        execution._compiles_blocks = (lambda *_: True) if by_default else compiles
        try:
            plan = execution.build_model(load_settings("tiny_cpu", words), {}, ranks).execution
            outcomes[name] = plan.describe()
        except ConfigError as error:
            outcomes[name] = f"refused: {error}"
        except SystemExit as error:
            outcomes[name] = f"status {error.code}"
    by_rank = from_all_ranks(outcomes, ranks)
    if ranks.is_first:
        print(json.dumps(by_rank))
    stop_ranks()


@pytest.fixture(scope="module")
def outcomes():
    status, output, errors = run_module("tests.pretrain.engine.test_agreement", ranks=2)
    assert status == 0, errors[-3000:]
    return json.loads(output.splitlines()[-1])


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("nothing", "attention fused (softmax and bias in one pass); loss fused"),
        ("check", "attention eager (fused does not work on this CPU: broken (on rank 1))"),
        ("build", "attention eager (no kernel of ours: g++ fails (on rank 1))"),
        ("compile", "blocks not compiled: there is no gcc (on rank 1)"),
    ],
)
def test_what_fails_on_one_rank_is_left_out_on_all(outcomes, name, outcome):
    first, second = (by_name[name] for by_name in outcomes)
    assert first == second
    assert outcome in first


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("check, asked for", "engine.attention='fused' does not work on this CPU: broken"),
        ("build, asked for", "our kernels for CPUs cannot be built: g++ fails"),
        ("compile, asked for", "engine.compile_blocks='on' does not work on this machine: "),
    ],
)
def test_what_was_asked_for_and_fails_on_one_rank_is_refused_by_all(outcomes, name, message):
    first, second = (by_name[name] for by_name in outcomes)
    assert first.startswith(f"refused: {message}") and "(on rank 1)" in first
    assert second == "status 1"


if __name__ == "__main__":
    main()
