"""The packages that the other checks import: this file imports none of them but `packaging`."""

import shlex
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from pretrain.doctor.check import Check, CheckContext, CheckResult

CHECKOUT = Path(__file__).parents[2]


def packages_are_installed(context: CheckContext, *, checkout: Path = CHECKOUT) -> CheckResult:
    """Compare the installed packages with the ranges of pyproject.toml."""
    wanted = _requirements(checkout)
    wrong: list[str] = []
    missing: list[str] = []
    for requirement in wanted:
        found = _version(requirement.name)
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            missing.append(f"'{requirement}'")
            wrong.append(f"{requirement.name} {found or 'is not installed'} (not {requirement})")
    if wrong:
        constraints = shlex.quote(str(checkout / "constraints.txt"))
        fix = f"python -m pip install -c {constraints} {' '.join(missing)}"
        return CheckResult("problem", "; ".join(wrong), fix)
    untested = ", ".join(_untested(checkout))
    return CheckResult(
        "ok",
        f"all {len(wanted)} are in the ranges of pyproject.toml"
        + (f"; not tested: {untested}" if untested else ""),
    )


# Run before the others: without these packages no other check can be imported.
PACKAGE_CHECKS = (Check("packages", packages_are_installed),)


def _untested(checkout: Path) -> list[str]:
    """Return the installed packages whose version is not that of constraints.txt."""
    file = checkout / "constraints.txt"
    lines = file.read_text().splitlines() if file.is_file() else []
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    found = {name: _version(name) for name in pins}
    return [
        f"{name} {installed} (tested: {pins[name]})"
        for name, installed in found.items()
        if installed is not None and installed.partition("+")[0] != pins[name]
    ]


def _requirements(checkout: Path) -> list[Requirement]:
    project = checkout / "pyproject.toml"
    if project.is_file():
        lines = tomllib.loads(project.read_text())["project"]["dependencies"]
    else:  # installed without a checkout
        lines = [line for line in requires("tupelo") or () if "extra ==" not in line]
    return [Requirement(line) for line in lines]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
