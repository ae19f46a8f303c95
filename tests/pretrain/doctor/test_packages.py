import platform
from importlib.metadata import version

from pretrain.doctor.packages import packages_are_there, python_is_recent, versions_are_tested


def project(folder, *, python=">=3.11", dependencies=(), pins=()):
    lines = "".join(f'  "{line}",\n' for line in dependencies)
    text = f'[project]\nrequires-python = "{python}"\ndependencies = [\n{lines}]\n'
    (folder / "pyproject.toml").write_text(text)
    (folder / "constraints.txt").write_text("# tested\n" + "".join(f"{pin}\n" for pin in pins))
    return folder


def test_a_python_in_the_range_is_fit(machine, tmp_path):
    found = python_is_recent(machine.surroundings(), checkout=project(tmp_path))
    assert found.mark == "ok" and platform.python_version() in found.found


def test_a_python_outside_of_the_range_is_a_problem(machine, tmp_path):
    found = python_is_recent(machine.surroundings(), checkout=project(tmp_path, python=">=9"))
    assert found.mark == "problem" and ">=9 is asked for" in found.found


def test_packages_that_are_missing_or_too_old_are_named_with_the_command(machine, tmp_path):
    wanted = ("numpy>=99", "no-such-package-of-anyone>=1", "torch>=2.0")
    found = packages_are_there(
        machine.surroundings(), checkout=project(tmp_path, dependencies=wanted)
    )
    assert found.mark == "problem"
    assert f"numpy {version('numpy')} (not numpy>=99)" in found.found
    assert "no-such-package-of-anyone is not installed" in found.found
    assert found.fix == (
        f"python -m pip install -c {tmp_path / 'constraints.txt'} 'numpy>=99' "
        "'no-such-package-of-anyone>=1'"
    )


def test_the_environment_of_this_checkout_is_fit(machine):
    assert packages_are_there(machine.surroundings()).mark == "ok"
    assert python_is_recent(machine.surroundings()).mark == "ok"


def test_versions_that_were_not_tested_are_told_and_are_no_fault(machine, tmp_path):
    pins = ("numpy==0.1", f"pytest=={version('pytest')}", "no-such-package-of-anyone==1")
    found = versions_are_tested(machine.surroundings(), checkout=project(tmp_path, pins=pins))
    assert found.mark == "ok"
    assert found.found.startswith("1 of 2 packages")
    assert found.found.endswith(f"not: numpy {version('numpy')} (tested: 0.1)")
