"""The compilers that a run calls when it starts."""

from pretrain.doctor.check import CheckContext, CheckResult
from pretrain.engine.compile_check import missing_for_compiling
from pretrain.kernels.cpu_kernels import COMPILER, obstacle_to_cpu_kernels


def compiler(context: CheckContext) -> CheckResult:
    """Look for what compiles our kernels: on a GPU Triton's launcher, on a CPU the kernels."""
    if context.accelerators.device == "cpu":
        return _cpu_compiler(obstacle_to_cpu_kernels())
    missing = missing_for_compiling("cuda", environment=context.environment)
    if missing is None:
        return CheckResult("ok", "a C compiler and Python.h")
    message, _, fix = missing.partition(": ")
    return CheckResult(
        "warning", f"{message}: no Triton kernel can start, and steps are slower", fix
    )


def _cpu_compiler(obstacle: str | None) -> CheckResult:
    if obstacle is None:
        return CheckResult("ok", f"{COMPILER}, for the kernels of a CPU")
    message = f"no kernels for this CPU, steps are slower: {obstacle}"
    if COMPILER in obstacle:
        return CheckResult("warning", message, f"install the package {COMPILER}")
    return CheckResult("ok", message)  # nothing can be done
