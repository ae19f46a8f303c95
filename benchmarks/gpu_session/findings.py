"""What the numbers of each part say: rows of the summary, with limits where there are any."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

# failed: a result is wrong or missing; missed: right, but slower than the goal
Verdict = Literal["passed", "failed", "missed", "skipped", "measured"]
Machine = Mapping[str, Any]

LARGEST_LOSS_DIFFERENCE = 0.02  # of fp16 and bf16 from fp32, relatively, over 40 updates
GOAL_TOKENS = {"NVIDIA H200": 600_000}  # a second at 64 x 512, BERT-Base, TUPE-R
GOAL_POSITION_COST = 0.03
GOAL_PAID = 0.95
GOAL_WAITING = 0.05
BUSY_TOKENS = 16_384  # of a micro-batch; below, the host may take longer than the GPU
SAME_SPEED = 0.03


class Finding(NamedTuple):
    """A row of the summary."""

    measured: str
    result: str
    verdict: Verdict
    limit: str = ""


def numbers_of(folder: Path, name: str) -> Any:
    """Return what the program of a part has written so far."""
    return json.loads((folder / f"{name}.numbers.json").read_text())["results"]


def goal(machine: Machine, measured: str, result: str, limit: str, *, is_reached: bool) -> Finding:
    """Return a finding of speed; in a dry run speed is no result."""
    if machine["dry_run"]:
        return Finding(measured, result, "measured", limit)
    return Finding(measured, result, "passed" if is_reached else "missed", limit)


def of_tests(folder: Path, name: str) -> list[Finding]:
    """Return counts and failures of a JUnit file."""
    suites = list(ElementTree.parse(folder / f"{name}.xml").getroot().iter("testsuite"))
    counts = {
        key: sum(int(suite.get(key, 0)) for suite in suites)
        for key in ("tests", "failures", "errors", "skipped")
    }
    bad = counts["failures"] + counts["errors"]
    good = counts["tests"] - bad - counts["skipped"]
    result = f"{good} passed, {bad} failed, {counts['skipped']} skipped"
    found = [Finding("tests", result, "failed" if bad or not good else "passed", "0 failed")]
    for case in (case for suite in suites for case in suite.iter("testcase")):
        for problem in [*case.iter("failure"), *case.iter("error")]:
            lines = (problem.get("message") or "").strip().splitlines() or ["no message"]
            found.append(Finding(str(case.get("name")), lines[0][:160], "failed"))
    return found


def of_precisions(folder: Path, machine: Machine) -> list[Finding]:
    """Compare the losses of each variant with those of fp32."""
    del machine
    found = []
    for shape in numbers_of(folder, "precisions"):
        yields = shape.get("variants", {})
        for name, numbers in yields.items():
            losses = numbers["losses"]
            is_right = numbers["difference"] <= LARGEST_LOSS_DIFFERENCE and losses[-1] < losses[0]
            result = (
                f"loss {losses[0]:.2f} -> {losses[-1]:.2f}, {numbers['difference']:.2%} from fp32, "
                f"{numbers['skipped_steps']} steps skipped, {milliseconds(numbers['seconds'])} a "
                "step"
            )
            verdict: Verdict = "passed" if is_right else "failed"
            found.append(Finding(name, result, verdict, f"{LARGEST_LOSS_DIFFERENCE:.0%}, falls"))
        found += [Finding(n, why, "skipped") for n, why in shape.get("skipped", {}).items()]
        found += errors_of(shape)
    return found


def of_killed_run(folder: Path, machine: Machine) -> list[Finding]:
    """Return whether the resumed run repeats the killed one, and its speed."""
    numbers = numbers_of(folder, "killed_run")
    resumed = numbers["resumed"]
    equal = resumed["largest_difference"] <= resumed["bound"] and resumed["lines"] > 0
    limit = f"{resumed['bound']:.1%}" if resumed["bound"] else "the same bits"
    lines = f"{resumed['lines']} lines of losses after the resume"
    difference = resumed["largest_difference"]
    same = f"largest relative difference {difference:.1e}" if difference else "the same bits"
    found = [Finding(lines, same, "passed" if equal else "failed", limit)]
    if "losses" in numbers:
        first, last = numbers["losses"]
        falls = last < first - numbers["least_fall"]
        found.append(
            Finding(
                f"loss of {numbers['steps']:,} steps, {numbers['tokens'] / 1e6:,.0f} M tokens",
                f"{first:.3f} -> {last:.3f}, held-out {numbers['held_out_loss']:.3f}",
                "passed" if falls else "failed",
                f"falls by {numbers['least_fall']}",
            )
        )
        found.append(
            Finding(
                "tokens/s, MFU, blocks run, peak memory of the run",
                f"{numbers['tokens_per_second']:,.0f}, {numbers['model_flops_utilisation']:.1%}, "
                f"{numbers['flops_share']:.0%} of the FLOPs, "
                f"{numbers['peak_memory_bytes'] / 2**30:.1f} GiB; {numbers['execution']}",
                "measured",
            )
        )
    del machine
    return found


def of_step_time(folder: Path, machine: Machine) -> list[Finding]:
    """Return times, utilisation and the ratio to Hugging Face's model."""
    found = []
    for shape in numbers_of(folder, "step_time"):
        steps = shape.get("steps", {})
        best = steps.get(shape.get("hugging_face_best"))
        for name, step in steps.items():
            ratio = f", {best['median'] / step['median']:.2f} x HF" if best else ""
            result = (
                f"{milliseconds(step['median'])}, {step['tokens_per_second']:,.0f} tokens/s, MFU "
                f"{step['model_flops_utilisation']:.0%}{ratio}{clocks_of(shape)}"
            )
            wanted = GOAL_TOKENS.get(machine["device"])
            measured = f"{name}, {size_of(shape)}"
            if wanted and "tupe-r" in name and shape["shape"][2] == 512:
                reached = step["tokens_per_second"] >= wanted
                limit = f"goal {wanted:,} tokens/s"
                found.append(goal(machine, measured, result, limit, is_reached=reached))
            else:
                found.append(Finding(measured, result, "measured"))
        if not machine["has_transformers"]:
            found.append(Finding("Hugging Face", "transformers is not installed", "skipped"))
        found += errors_of(shape)
    return found


def of_position_cost(folder: Path, machine: Machine) -> list[Finding]:
    """Return what each encoding costs against the one without a bias."""
    found = []
    for shape in numbers_of(folder, "position_cost"):
        for name, numbers in shape.get("positions", {}).items():
            cost = numbers["cost"]
            if name == "bert-a" or cost is None:  # None: bert-a is among the errors
                continue
            measured = f"{name} against bert-a, {size_of(shape)}"
            result = f"{cost:+.1%} ({numbers['attention']}){clocks_of(shape)}"
            if "folded" in name:  # what no run uses by default
                found.append(Finding(measured, result, "measured"))
            else:
                reached, limit = cost <= GOAL_POSITION_COST, f"goal {GOAL_POSITION_COST:.0%}"
                found.append(goal(machine, measured, result, limit, is_reached=reached))
        found += errors_of(shape)
    return found


def of_layer_drop(folder: Path, machine: Machine) -> list[Finding]:
    """Return which share of the saved FLOPs is saved time."""
    found = []
    for shape in numbers_of(folder, "layer_drop"):
        if "paid" in shape:
            found.append(
                goal(
                    machine,
                    f"saved time over saved FLOPs, ZeRO-{shape['zero_stage']}, {size_of(shape)}",
                    f"{shape['paid']:.0%} ± {shape['standard_error']:.0%} of "
                    f"{shape['flops_saved']:.1%}{clocks_of(shape)}",
                    f"goal {GOAL_PAID:.0%}",
                    is_reached=shape["paid"] + shape["standard_error"] >= GOAL_PAID,
                )
            )
        found += errors_of(shape)
    return found


def of_short_rows(folder: Path, machine: Machine) -> list[Finding]:
    """Return which attention is faster by length, and whether `auto` takes it."""
    found = []
    for shape in numbers_of(folder, "short_rows"):
        ratio = shape.get("eager_over_ours")
        if ratio is not None:
            cost = max(1.0, 1 / ratio if shape["auto"] == shape["ours"] else ratio) - 1
            found.append(
                goal(
                    machine,
                    f"eager / {shape['ours']}, {size_of(shape)}",
                    f"{ratio:.3f}; auto takes {shape['auto']}{clocks_of(shape)}",
                    f"auto within {SAME_SPEED:.0%}",
                    is_reached=cost <= SAME_SPEED,
                )
            )
        found += errors_of(shape)
    return found


def of_ranks(folder: Path, machine: Machine) -> list[Finding]:
    """Return efficiency and exchanged bytes of two ranks."""
    del machine
    found: list[Finding] = []
    results = numbers_of(folder, "ranks")
    alone = {r["zero_stage"]: min(r["median_seconds"]) for r in results if r.get("ranks") == 1}
    for numbers in results:
        found += errors_of(numbers)
        if numbers.get("ranks", 1) > 1:
            exchanged, predicted = (
                sum(numbers["exchanged_bytes"].values()) / 2**20,
                numbers["predicted_bytes"] / 2**20,
            )
            seconds = min(numbers["median_seconds"])
            one = alone.get(numbers["zero_stage"])  # None: that launch is among the errors
            efficiency = f"{one / seconds:.0%}" if one is not None else "-"
            found.append(
                Finding(
                    f"{numbers['ranks']} ranks at ZeRO-{numbers['zero_stage']}",
                    f"{milliseconds(seconds)}, efficiency {efficiency}; {exchanged:.0f} MiB "
                    f"exchanged, {predicted:.0f} predicted",
                    "measured",
                )
            )
    return found


def of_host_cost(folder: Path, machine: Machine) -> list[Finding]:
    """Return the share of a step in which the GPU waits for the host."""
    found = []
    for shape in numbers_of(folder, "host_cost"):
        if "step" in shape:
            result = milliseconds(shape["step"])
            measured = f"step with layer drop, {size_of(shape)}"
            if "waiting_share" not in shape:
                found.append(Finding(measured, f"{result}; no GPU that could wait", "measured"))
                continue
            result = (
                f"waits {shape['waiting_share']:.1%} of {result}; the host issues it in "
                f"{milliseconds(shape['host'])}{clocks_of(shape)}"
            )
            if shape["shape"][2] * shape["shape"][3] < BUSY_TOKENS:
                found.append(Finding(measured, result, "measured"))
            else:
                reached = shape["waiting_share"] <= GOAL_WAITING
                limit = f"goal {GOAL_WAITING:.0%}"
                found.append(goal(machine, measured, result, limit, is_reached=reached))
        found += errors_of(shape)
    return found


def of_profile(folder: Path, machine: Machine) -> list[Finding]:
    """Return the shares of the phases and the costliest kernels: where the time goes."""
    del machine
    numbers = json.loads((folder / "profile/profile.json").read_text())
    shares = numbers["metrics"]["time_shares"]
    phases = ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)
    operators = ", ".join(
        f"{row['name'][:40]} {row['milliseconds']:.1f} ms" for row in numbers["operators"][:6]
    )
    return [
        Finding("phases of a step at full depth", phases, "measured"),
        Finding("costliest operators of a step", operators, "measured"),
    ]


def errors_of(shape: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a shape that failed, or the variants that did."""
    if "error" in shape:
        yield Finding(size_of(shape), shape["error"], "failed")
    for name, problem in shape.get("failures", {}).items():
        yield Finding(f"{name}, {size_of(shape)}", problem, "failed")


def size_of(shape: Mapping[str, Any]) -> str:
    """Return the batch of a shape."""
    _, _, length, sequences = shape["shape"]
    return f"{sequences} x {length}"


def clocks_of(shape: Mapping[str, Any]) -> str:
    """Return at which clock and power the GPU ran."""
    gpu = shape.get("gpu")
    if not gpu:
        return ""
    return (
        f"; {gpu['clock_mhz']:.0f} of {gpu['largest_clock_mhz']:.0f} MHz, "
        f"{gpu['power_watts']:.0f} of {gpu['power_limit_watts']:.0f} W"
    )


def milliseconds(seconds: float) -> str:
    """Return a time as it is printed."""
    return f"{seconds * 1e3:.{1 if seconds < 0.1 else 0}f} ms"
