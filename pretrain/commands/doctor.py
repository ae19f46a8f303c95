"""Is this machine fit for a run, and is the run sound? Each failed check says what to do.

    tupelo doctor                        the machine
    tupelo doctor RECIPE --ranks 8       and whether this run fits it
    tupelo doctor runs/NAME              and the state of an existing run

Exit status 1 means that a run would fail or be wrong. Nothing is changed; 64 MiB are written to the
folder of the runs and removed again.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import CommandParser, add_settings, read_settings
from pretrain.doctor.check import Check, CheckContext, CheckResult, problem_of, run_check
from pretrain.doctor.packages import PACKAGE_CHECKS

TITLE_WIDTH = 20
STATUS_WIDTH = 9


def add_arguments(parser: CommandParser) -> None:
    """Add the options of `tupelo doctor`."""
    parser.add_argument("--run-folder", type=Path, help="where the run goes; default: runs/")
    parser.add_argument(
        "--ranks", type=int, help="processes of the run on this machine; default: one per GPU, or 1"
    )
    parser.set_defaults(source=add_settings(parser, recipe_nargs="?"))


def main(arguments: argparse.Namespace) -> None:
    """Run every check, and print its result as soon as it is known.

    Raises:
        ConfigError: the number of ranks is below 1.
        SystemExit: there is a problem.
    """
    if arguments.ranks is not None and arguments.ranks < 1:
        raise ConfigError(f"--ranks {arguments.ranks}: give the number of processes, such as 2")
    context = CheckContext(dict(os.environ), _run_folder(arguments))
    results = run_checks(PACKAGE_CHECKS, context)
    if any(result.status == "problem" for result in results):
        print("The other checks need these packages.")
        sys.exit(1)
    # Imported late: without the packages it cannot be imported.
    from pretrain.doctor.checks import CHECKS, RUN_CHECKS
    from pretrain.doctor.device import find_accelerators

    accelerators = find_accelerators()
    context = dataclasses.replace(
        context,
        accelerators=accelerators,
        ranks=arguments.ranks or len(accelerators.gpus) or 1,
    )
    if arguments.recipe is not None:
        context, problem = _with_settings(context, arguments)
        checks = (Check("settings", lambda _: problem),) if problem else RUN_CHECKS
        results += run_checks(checks, context)
    results += run_checks(CHECKS, context)
    print(summary(results))
    if any(result.status == "problem" for result in results):
        sys.exit(1)


def run_checks(checks: Iterable[Check], context: CheckContext) -> list[CheckResult]:
    """Run the checks in turn and print each result; a terminal shows the one that is running."""
    results = []
    for check in checks:
        if sys.stderr.isatty():
            print(f"{'...':{STATUS_WIDTH}}{check.title}", end="", file=sys.stderr, flush=True)
        result = run_check(check, context)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(describe(check.title, result), flush=True)
        results.append(result)
    return results


def describe(title: str, result: CheckResult) -> str:
    """Return a result as a line, and the fix as a second one."""
    line = f"{result.status:{STATUS_WIDTH}}{title:{TITLE_WIDTH}}{result.message}"
    return f"{line}\n{' ' * (STATUS_WIDTH + TITLE_WIDTH)}-> {result.fix}" if result.fix else line


def summary(results: list[CheckResult]) -> str:
    """Return the last line."""
    problems, warnings = (
        sum(result.status == status for result in results) for status in ("problem", "warning")
    )
    verdict = "Fix the problems before a run." if problems else "This machine is fit for runs."
    return f"{len(results)} checks, {problems} problem(s), {warnings} warning(s). {verdict}"


def _with_settings(
    context: CheckContext, arguments: argparse.Namespace
) -> tuple[CheckContext, CheckResult | None]:
    """Return the context with the settings of the run, or why they are refused."""
    from pretrain.checkpoint.resume import zero_stage_before
    from pretrain.distributed.ranks import Ranks
    from pretrain.engine.launch import check_machine, checked_settings

    ranks = Ranks(0, context.ranks, context.accelerators.device)
    try:
        settings = read_settings(arguments, arguments.source)
        stage_before = zero_stage_before(context.run_folder)  # that a resume keeps
        settings, ds_config = checked_settings(settings, ranks, stage_before=stage_before)
        check_machine(settings, ds_config, ranks.device)
    except ConfigError as error:
        return context, problem_of(error)
    return dataclasses.replace(
        context, recipe=arguments.recipe, settings=settings, ds_config=ds_config
    ), None


def _run_folder(arguments: argparse.Namespace) -> Path:
    if arguments.run_folder is not None:
        return Path(arguments.run_folder)
    recipe = Path(arguments.recipe or "")
    return recipe if (recipe / "run.json").is_file() else Path("runs")
