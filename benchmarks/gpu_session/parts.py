"""The parts of a session, in their order: what runs, in which time, and what is made of it.

The first ones show that results are right; speed comes after them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import findings
from findings import Finding, Machine
from killed_run import RECIPE, SMALL


def runs_everywhere(machine: Machine) -> str | None:
    """Return None: nothing is missing."""
    del machine
    return None


def needs_gpu(machine: Machine) -> str | None:
    """Return why a part does not run in a dry run."""
    return "it needs an NVIDIA GPU" if machine["dry_run"] else None


def needs_pytest(machine: Machine) -> str | None:
    """Return why the tests cannot run."""
    return None if machine["has_pytest"] else "pytest is not installed"


def needs_two_gpus(machine: Machine) -> str | None:
    """Return why ranks cannot be compared; in a dry run they are processes on the CPU."""
    if machine["dry_run"] or machine["gpus"] > 1:
        return None
    return "it needs two GPUs, and there is one"


@dataclass(frozen=True)
class Part:
    """A program that measures, and how its numbers are read.

    Words may contain {numbers}, {folder} and {work}: the JSON file to write, the folder of the
    results, and one for shards and runs.
    """

    name: str
    title: str
    seconds: int  # at most, on a GPU; about a minute of compiling for each shape of a model
    words: tuple[str, ...]  # after the interpreter
    small: tuple[str, ...]  # the same in small, on a CPU
    findings: Callable[[Path, Machine], list[Finding]]
    obstacle: Callable[[Machine], str | None] = runs_everywhere


def program(name: str, *words: str) -> tuple[str, ...]:
    """Return the words that start a benchmark."""
    return (f"benchmarks/{name}.py", "--json", "{numbers}", *words)


def tests(name: str, *words: str) -> tuple[str, ...]:
    """Return the words that start tests."""
    report = ("--junitxml", f"{{folder}}/{name}.xml")
    return ("-m", "pytest", "-q", "-p", "no:cacheprovider", *report, *words)


GPU_TESTS = ("tests/pretrain/engine/test_gpu.py", "tests/tupelo/test_loaded_encoder.py")
INTERPRETED = "tests/pretrain/kernels/test_triton_attention.py"
TINY = ("--shapes", "2,64,32,2")

PARTS = (
    Part(
        "kernels_small",
        "the attention kernels against the formula, a few shapes",
        180,
        tests("kernels_small", "-m", "gpu", "-k", "kernels and 192", GPU_TESTS[0]),
        tests("kernels_small", "-k", "without_a_bias", INTERPRETED),
        lambda folder, _: findings.of_tests(folder, "kernels_small"),
        needs_pytest,
    ),
    Part(
        "gpu_tests",
        "all tests that need a GPU",
        450,
        tests("gpu_tests", "-m", "gpu", *GPU_TESTS),
        (),
        lambda folder, _: findings.of_tests(folder, "gpu_tests"),
        lambda machine: needs_gpu(machine) or needs_pytest(machine),
    ),
    Part(
        "precisions",
        "fp16, bf16, torch's fused AdamW and DeepSpeed's FusedAdam against fp32",
        300,
        program("precisions"),
        program("precisions", *TINY, "--steps", "4"),
        findings.of_precisions,
    ),
    Part(
        "killed_run",
        "a run of TUPE-R with layer drop: killed, resumed, equal?",
        480,
        ("benchmarks/gpu_session/killed_run.py", "{work}", "--json", "{numbers}"),
        ("benchmarks/gpu_session/killed_run.py", "{work}", "--json", "{numbers}", "--small"),
        findings.of_killed_run,
    ),
    Part(
        "step_time",
        "a step against Hugging Face's model, both compiled",
        330,
        program("step_time", "--one-precision"),
        program("step_time", "--one-precision", "--steps", "2", *TINY),
        findings.of_step_time,
    ),
    Part(
        "position_cost",
        "TUPE's bias against none",
        360,
        program("position_cost", "--shapes", "12,768,512,64", "12,768,128,256"),
        program("position_cost", "--steps", "2", *TINY),
        findings.of_position_cost,
    ),
    Part(
        "layer_drop",
        "the time that layer drop saves against the FLOPs",
        300,
        program("layer_drop", "--stages", "0", "--shapes", "12,768,512,64", "12,768,128,256"),
        program("layer_drop", "--stages", "0", "--steps", "4", "--shapes", "4,64,32,2"),
        findings.of_layer_drop,
    ),
    Part(
        "short_rows",
        "eager against our kernels by length, both compiled",
        360,
        program("short_rows"),
        program("short_rows", "--steps", "2", *TINY),
        findings.of_short_rows,
    ),
    Part(
        "ranks",
        "two ranks against one, over NCCL",
        180,
        program("scaling", "--shape", "12,768,512,64", "--stages", "0", "1", "--rounds", "1"),
        program(
            *("scaling", "--shape", "2,64,32,2", "--stages", "0", "--rounds", "1", "--steps", "2")
        ),
        findings.of_ranks,
        needs_two_gpus,
    ),
    Part(
        "host_cost",
        "the share of a step in which the GPU waits for the host",
        240,
        program("host_cost"),
        program("host_cost", "--steps", "2", *TINY),
        findings.of_host_cost,
    ),
    Part(
        "profile",
        "where the time of a step goes, by phase and kernel, with a trace",
        180,
        ("-m", "tupelo", "profile", str(RECIPE), "--full-depth", "--to", "{folder}/profile"),
        (
            *("-m", "tupelo", "profile", str(RECIPE), "--full-depth", "--to", "{folder}/profile"),
            *(*SMALL, "--steps", "2"),
        ),
        findings.of_profile,
    ),
)
