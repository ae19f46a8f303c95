"""Python and the packages: what the others import, so this file needs none of them but one."""

import platform
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pretrain.doctor.finding import CHECKOUT, Check, CheckResult, Surroundings


def python_is_recent(surroundings: Surroundings, *, checkout: Path = CHECKOUT) -> CheckResult:
    """Compare the version of Python with `requires-python`."""
    running, project = platform.python_version(), checkout / "pyproject.toml"
    if not project.is_file():
        return CheckResult("ok", running)
    wanted = str(tomllib.loads(project.read_text())["project"]["requires-python"])
    if SpecifierSet(wanted).contains(running, prereleases=True):
        return CheckResult("ok", f"{running} ({wanted} is asked for)")
    return CheckResult(
        "problem",
        f"{running}, but {wanted} is asked for",
        "deactivate; ./run_tests.sh makes .venv with another Python (Debian: apt install python3)",
    )


def packages_are_there(surroundings: Surroundings, *, checkout: Path = CHECKOUT) -> CheckResult:
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
        fix = f"python -m pip install -c {checkout / 'constraints.txt'} {' '.join(missing)}"
        return CheckResult("problem", "; ".join(wrong), fix)
    named = ", ".join(f"{name} {_version(name)}" for name in ("torch", "deepspeed"))
    return CheckResult("ok", f"all {len(wanted)} are in the ranges of pyproject.toml; {named}")


def versions_are_tested(surroundings: Surroundings, *, checkout: Path = CHECKOUT) -> CheckResult:
    """Tell which packages are not of the version that Tupelo was tested with."""
    file = checkout / "constraints.txt"
    lines = file.read_text().splitlines() if file.is_file() else []
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    found = {name: _version(name) for name in pins}
    others = [
        f"{name} {have} (tested: {pins[name]})"
        for name, have in found.items()
        if have is not None and have.partition("+")[0] != pins[name]
    ]
    installed = sum(have is not None for have in found.values())
    return CheckResult(
        "ok",
        f"{installed - len(others)} of {installed} packages are of the version of "
        f"constraints.txt{'; not: ' if others else ''}{', '.join(others)}",
    )


# Run before everything else: without its packages no other check can even be imported.
PACKAGE_CHECKS = (
    Check("Python", python_is_recent),
    Check("packages", packages_are_there),
    Check("tested versions", versions_are_tested),
)


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
