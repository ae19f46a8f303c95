from importlib.metadata import version

from pretrain.doctor.packages import packages_are_installed


def project(folder, *, dependencies=(), pins=()):
    lines = "".join(f'  "{line}",\n' for line in dependencies)
    text = f"[project]\ndependencies = [\n{lines}]\n"
    (folder / "pyproject.toml").write_text(text)
    (folder / "constraints.txt").write_text("# tested\n" + "".join(f"{pin}\n" for pin in pins))
    return folder


def test_packages_that_are_missing_or_too_old_are_named_with_the_command(machine, tmp_path):
    wanted = ("numpy>=99", "no-such-package-of-anyone>=1", "torch>=2.0")
    found = packages_are_installed(
        machine.context(), checkout=project(tmp_path, dependencies=wanted)
    )
    assert found.status == "problem"
    assert f"numpy {version('numpy')} (not numpy>=99)" in found.message
    assert "no-such-package-of-anyone is not installed" in found.message
    assert found.fix == (
        f"python -m pip install -c {tmp_path / 'constraints.txt'} 'numpy>=99' "
        "'no-such-package-of-anyone>=1'"
    )


def test_the_environment_of_this_checkout_is_fit(machine):
    assert packages_are_installed(machine.context()).status == "ok"


def test_versions_that_were_not_tested_are_named_and_are_no_problem(machine, tmp_path):
    pins = ("numpy==0.1", f"pytest=={version('pytest')}", "no-such-package-of-anyone==1")
    checkout = project(tmp_path, dependencies=("numpy",), pins=pins)
    found = packages_are_installed(machine.context(), checkout=checkout)
    assert found.status == "ok"
    assert found.message.endswith(f"; not tested: numpy {version('numpy')} (tested: 0.1)")
