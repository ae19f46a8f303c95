"""Is this machine fit for a run? Checks the environment, and says what to do where it is not.

    python -m pretrain doctor                        the machine
    python -m pretrain doctor RECIPE --ranks 8       and whether this run fits it
    python -m pretrain doctor runs/NAME

Ends with status 1 where a run would fail or be wrong. It changes nothing; it writes 64 MiB where
runs go, and removes them.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pretrain.config.errors import ConfigError
from pretrain.config.recipe import add_settings
from pretrain.doctor.finding import Check, CheckResult, Surroundings, examine
from pretrain.doctor.packages import PACKAGE_CHECKS

if TYPE_CHECKING:
    from pretrain.distributed.ranks import Ranks

TITLE_WIDTH = 19
MARK_WIDTH = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `python -m pretrain doctor`."""
    parser.add_argument("--run-folder", type=Path, help="where the run goes; default: runs/")
    parser.add_argument(
        "--ranks", type=int, help="processes that the run has here; default: one a GPU, or 1"
    )
    parser.set_defaults(source=add_settings(parser, recipe_nargs="?"))


def main(arguments: argparse.Namespace) -> None:
    """Make every check, and print a line or two for each as soon as it is made.

    Raises:
        ConfigError: the number of ranks is none.
        SystemExit: there is a problem.
    """
    if arguments.ranks is not None and arguments.ranks < 1:
        raise ConfigError(f"--ranks {arguments.ranks}: give the number of processes, such as 2")
    surroundings = Surroundings(dict(os.environ), _run_folder(arguments))
    findings = make(PACKAGE_CHECKS, surroundings)
    if any(finding.mark == "problem" for finding in findings):
        print("The other checks need these packages.")
        sys.exit(1)
    # Not before: without the packages it cannot be imported.
    from pretrain.doctor.checks import CHECKS, RUN_CHECKS
    from pretrain.doctor.device import find_accelerators

    accelerators = find_accelerators()
    surroundings = dataclasses.replace(
        surroundings,
        accelerators=accelerators,
        ranks=arguments.ranks or len(accelerators.gpus) or 1,
    )
    if arguments.recipe is not None:
        surroundings, complaint = _with_settings(surroundings, arguments)
        checks = (Check("settings", lambda _: complaint),) if complaint else RUN_CHECKS
        findings += make(checks, surroundings)
    findings += make(CHECKS, surroundings)
    print(summary(findings))
    if any(finding.mark == "problem" for finding in findings):
        sys.exit(1)


def make(checks: Iterable[Check], surroundings: Surroundings) -> list[CheckResult]:
    """Make the checks in turn, and print each finding; a terminal shows what is under way."""
    findings = []
    for check in checks:
        if sys.stderr.isatty():
            print(f"{'...':{MARK_WIDTH}}{check.title}", end="", file=sys.stderr, flush=True)
        finding = examine(check, surroundings)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(describe(check.title, finding), flush=True)
        findings.append(finding)
    return findings


def describe(title: str, finding: CheckResult) -> str:
    """Return a finding as a line, and what to do as another."""
    line = f"{finding.mark:{MARK_WIDTH}}{title:{TITLE_WIDTH}}{finding.found}"
    return f"{line}\n{' ' * (MARK_WIDTH + TITLE_WIDTH)}-> {finding.fix}" if finding.fix else line


def summary(findings: list[CheckResult]) -> str:
    """Return the last line."""
    problems, warnings = (
        sum(finding.mark == mark for finding in findings) for mark in ("problem", "warning")
    )
    verdict = "Mend the problems before a run." if problems else "This machine is fit for runs."
    return f"{len(findings)} checks, {problems} problem(s), {warnings} warning(s). {verdict}"


def _with_settings(
    surroundings: Surroundings, arguments: argparse.Namespace
) -> tuple[Surroundings, CheckResult | None]:
    """Return the surroundings of this run, or why there can be none."""
    from pretrain.engine.launch import checked_settings

    ranks = _ranks(surroundings)
    try:
        settings, ds_config = checked_settings(arguments, ranks, ranks.device)
    except ConfigError as error:
        found, _, fix = str(error).partition("; ")
        return surroundings, CheckResult("problem", found, fix)
    return dataclasses.replace(
        surroundings, recipe=arguments.recipe, settings=settings, ds_config=ds_config
    ), None


def _ranks(surroundings: Surroundings) -> "Ranks":
    from pretrain.distributed.ranks import Ranks

    return Ranks(0, surroundings.ranks, surroundings.accelerators.device)


def _run_folder(arguments: argparse.Namespace) -> Path:
    if arguments.run_folder is not None:
        return Path(arguments.run_folder)
    recipe = Path(arguments.recipe or "")
    return recipe if (recipe / "run.json").is_file() else Path("runs")
