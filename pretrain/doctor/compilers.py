"""The compilers that a run calls when it starts."""

from pretrain.doctor.check import CheckContext, CheckResult
from pretrain.engine.compile_check import missing_for_compiling


def compiler(context: CheckContext) -> CheckResult:
    """Look for what Triton compiles its launcher with, on machines with a GPU."""
    if context.accelerators.device == "cpu":
        return CheckResult("ok", "not needed without a GPU")
    missing = missing_for_compiling("cuda", environment=context.environment)
    if missing is None:
        return CheckResult("ok", "a C compiler and Python.h")
    message, _, fix = missing.partition(": ")
    return CheckResult(
        "warning", f"{message}: no Triton kernel can start, and steps are slower", fix
    )
