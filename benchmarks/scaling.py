"""Compare one rank with several: step time, bytes exchanged, memory, for every ZeRO stage.

    python benchmarks/scaling.py [--ranks 1 2] [--shape 4,256,128,16] [--json FILE]

Every rank has the same batch whatever their number (weak scaling) and, on a CPU, one thread. Each
combination is a launch of its own under torchrun; the rounds alternate between them. The bytes are
the payload of the collectives of a step; beside them stands what ZeRO must exchange by its
definition (Rajbhandari et al. 2019, Sec. 7), and beside the memory the optimizer state that it
predicts for a rank.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from side_by_side import (
    STEPS_PER_ROUND,
    WARM_UP_ROUNDS,
    alternate,
    attempted,
    fail_after_errors,
    parser,
    print_rows,
    shape,
    write_json,
)

from data_prep.files.program import run_program

STAGES = (0, 1, 2, 3)
POSITIONS = ("--model.positions", "tupe-r", "--model.norm", "pre")


def main() -> None:
    """Launch every combination in turn and print a table."""
    options = parser(__doc__, steps=15)
    options.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    options.add_argument("--shape", type=shape, default=(4, 256, 128, 16))
    options.add_argument("--stages", type=int, nargs="+", default=STAGES, help="of ZeRO")
    options.add_argument("--rounds", type=int, default=3, help="launches of each combination")
    options.add_argument("--stage", type=int, help=argparse.SUPPRESS)  # a rank of a launch
    arguments = options.parse_args()
    if arguments.stage is not None:
        measure_rank(arguments)
        return
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    failures: dict[str, str] = {}
    for _ in range(arguments.rounds):
        for stage in arguments.stages:
            for ranks in arguments.ranks:
                launched = partial(launch, stage, ranks, arguments)
                name = f"ZeRO-{stage}, {ranks} rank(s)"
                measured = attempted({name: launched}, failures)
                found.setdefault((stage, ranks), []).extend(measured.values())
                results = [merged(launches) for launches in found.values() if launches]
                failed = [{"shape": arguments.shape, "failures": failures}] if failures else []
                write_json(arguments.json, results + failed)
    print_table(results, arguments)
    fail_after_errors(failed)


def launch(stage: int, ranks: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Start the ranks of one combination and return what the first one measured."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rank.json"
        launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        numbers = ",".join(map(str, arguments.shape))
        finished = subprocess.run(
            [sys.executable, *launcher, __file__, "--stage", str(stage), "--shape", numbers]
            + ["--steps", str(arguments.steps), "--json", str(file)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        if finished.returncode:
            raise RuntimeError(f"torchrun ended with status {finished.returncode}")
        measured: dict[str, Any] = json.loads(file.read_text())
        return measured


def measure_rank(arguments: argparse.Namespace) -> None:
    """Take the steps of one rank; the first one writes what it saw."""
    from training_step import OurStep, Shape

    from pretrain.distributed.ranks import start_ranks, stop_ranks
    from pretrain.engine.footprint import optimizer_state_bytes
    from pretrain.model.cost import parameters_by_group
    from pretrain.profiling.hardware import peak_memory_bytes

    ranks, shape = start_ranks(), Shape(*arguments.shape)
    step = OurStep(shape, f"zero{arguments.stage}_bf16_autocast", ranks, *POSITIONS)
    step()
    step.engine.synchronize()
    step.engine.pop_costs()
    timing = alternate({"step": step}, arguments.steps, device=ranks.device)
    spent = step.engine.pop_costs()
    taken = WARM_UP_ROUNDS + arguments.steps * STEPS_PER_ROUND[ranks.device]
    parameters = parameters_by_group(step.progress.settings.model)["total"]
    config = {"zero_optimization": {"stage": arguments.stage}}
    if ranks.is_first:
        numbers = {
            "zero_stage": arguments.stage,
            "ranks": ranks.world_size,
            "seconds": timing.seconds["step"],
            "communication_share": spent.seconds.get("communication", 0.0)
            / sum(spent.seconds.values()),
            "exchanged_bytes": {kind: size / taken for kind, size in spent.payload_bytes.items()},
            "predicted_bytes": predicted_bytes(arguments.stage, parameters, ranks.world_size),
            "peak_memory_bytes": peak_memory_bytes(ranks.device),
            "optimizer_bytes": optimizer_bytes(step.engine, arguments.stage),
            "predicted_optimizer_bytes": optimizer_state_bytes(
                step.progress.settings, config, ranks.world_size
            ),
            "parameters": parameters,
        }
        arguments.json.write_text(json.dumps(numbers))
    stop_ranks()


def optimizer_bytes(engine: Any, stage: int) -> int:
    """Return the bytes of moments, and from stage 1 on of the fp32 weights, that a rank holds."""
    # ZeRO's optimizer is wrapped around the one that keeps the moments.
    optimizer = engine._optimizer if stage == 0 else engine._optimizer.optimizer
    moments = [part for state in optimizer.state.values() for part in state.values()]
    if stage == 3:
        weights = engine._optimizer.fp32_partitioned_groups_flat
    else:
        weights = [part for group in optimizer.param_groups for part in group["params"]]
    return sum(
        part.nbytes
        for part in (moments if stage == 0 else moments + weights)
        if hasattr(part, "nbytes")
    )


def predicted_bytes(stage: int, parameters: int, ranks: int) -> int:
    """Return the payload of a step's collectives in fp32.

    The gradients go through one reduction. From stage 1 on the updated weights are gathered, at
    stage 3 in the forward and in the backward pass instead: there DeepSpeed exchanges less for a
    model of this size, whose weights it keeps from one pass to the other.
    """
    if ranks == 1:
        return 0
    gathers = {0: 0, 1: 1, 2: 1, 3: 2}[stage]
    return 4 * parameters * (1 + gathers)


def merged(launches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the launches of one combination as one, with the median step of each."""
    medians = [statistics.median(found["seconds"]) for found in launches]
    shares = [found["communication_share"] for found in launches]
    return {
        **launches[0],
        "median_seconds": medians,
        "communication_share": statistics.median(shares),
    }


def print_table(results: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """Print one row per stage and number of ranks."""
    from training_step import Shape

    rows = []
    for found in results:
        alone = [
            statistics.median(other["median_seconds"])
            for other in results
            if other["zero_stage"] == found["zero_stage"] and other["ranks"] == 1
        ]
        median = statistics.median(found["median_seconds"])
        low, high = min(found["median_seconds"]), max(found["median_seconds"])
        rows.append(
            (
                f"ZeRO-{found['zero_stage']}, {found['ranks']} rank(s)",
                f"{median * 1e3:.0f}",
                f"{low * 1e3:.0f} - {high * 1e3:.0f}",
                f"{alone[0] / median:.0%}" if alone else "",
                f"{found['communication_share']:.0%}",
                f"{sum(found['exchanged_bytes'].values()) / 2**20:.1f}",
                f"{found['predicted_bytes'] / 2**20:.1f}",
                f"{found['peak_memory_bytes'] / 2**20:,.0f}",
                f"{found['optimizer_bytes'] / 2**20:.1f}",
                f"{found['predicted_optimizer_bytes'] / 2**20:.1f}",
            )
        )
    headers = (
        "",
        "step ms",
        "range",
        "efficiency",
        "in exchange",
        "MiB exchanged",
        "predicted",
        "peak MiB a rank",
        "optimizer MiB",
        "predicted",
    )
    print_rows(f"{Shape(*arguments.shape)} a rank; {arguments.rounds} launches each", headers, rows)


if __name__ == "__main__":
    run_program(lambda _: main())
