"""The run_*.sh scripts, in a copy of the checkout whose PATH holds stubs that note their calls."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.command_line import CommandParser
from finetune.commands import run as finetune_run
from pretrain.commands import sweep, train

ROOT = Path(__file__).parents[1]
SCRIPTS = ("environment.sh", "run_pretrain.sh", "run_finetune.sh", "run_tests.sh")
SCRIPTS += ("pyproject.toml", "constraints.txt")
TOOLS = ["bash", "cp", "dirname", "env", "mkdir", "mktemp", "sed", "touch"]
VENV, INSTALL = r"\S+ -m venv", r"\S+ -m pip install"

# Stands for every program: python3, .venv/bin/python, ruff, mypy and pytest. An environment is
# complete for the extras of the installations that succeeded.
STUB = r"""#!/usr/bin/env bash
here=$(dirname "$0") call="${0##*/} $*"
case $call in
  python*' -c import sys, '*) [[ -z ${STUB_IS_OLD:-} ]]; exit ;;
  python*' -c import tomllib, '*) exit ;;
  python*' - '*) [[ -e "$here/installed-$3" ]]; exit ;;
esac
echo "$call" >>"$CALLS"
[[ -z ${STUB_FAILS:-} || $call != $STUB_FAILS ]] || { echo "what is wrong"; exit 3; }
case $call in
  *'-m venv'*) mkdir -p "$5/bin"; cp "$0" "$5/bin/python" ;;
  *'-m pip'*'[test,clients]') touch "$here/installed-test,clients" "$here/installed-test" ;;
  *'-m pip'*'[test]') touch "$here/installed-test" ;;
esac
case $call in *'-m pip'*) touch "$here/installed-" ;; esac
"""


class Checkout:
    """A copy of the scripts, and the little that they need on PATH."""

    def __init__(self, folder):
        self.root, self.bin, self.log = folder / "checkout", folder / "bin", folder / "calls"
        self.bin.mkdir(parents=True)
        self.root.mkdir()
        for name in SCRIPTS:
            shutil.copy(ROOT / name, self.root / name)
        (self.root / ".ci").mkdir()
        shutil.copy(ROOT / ".ci/run", self.root / ".ci/run")
        for name in TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))
        for name in ("python3", "ruff", "mypy", "pytest"):
            self.program(name)
        (self.root / "benchmarks").mkdir()
        self.program(self.root / "benchmarks/gpu.sh")
        self.environment = {"PATH": str(self.bin), "CALLS": str(self.log)}

    def program(self, name, text=STUB):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, script, *arguments, cwd=None, **environment):
        return subprocess.run(
            [self.root / script, *arguments],
            cwd=cwd or self.root,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
        )

    def calls(self, start=""):
        """Return the calls so far that start with this pattern."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if re.match(start, line)]

    def started(self):
        """Return the command lines of tupelo."""
        return [call.partition(" -m tupelo ")[2] for call in self.calls(".* -m tupelo ")]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


# ---- environment.sh


def test_the_first_start_installs_the_pinned_packages_and_the_second_nothing(checkout):
    result = checkout.run("run_pretrain.sh", "tiny_cpu")
    assert result.returncode == 0 and "about two minutes" in result.stderr
    venv, install, _ = checkout.calls()
    assert venv == f"python3 -m venv --clear --upgrade-deps {checkout.root}/.venv"
    assert install.endswith(f"-c {checkout.root}/constraints.txt -e {checkout.root}")
    assert checkout.run("run_pretrain.sh", "tiny_cpu").stderr == ""
    assert len(checkout.calls(f"{VENV}|{INSTALL}")) == 2


def test_uv_installs_where_there_is_one(checkout):
    checkout.program("uv")
    assert checkout.run("run_pretrain.sh", "tiny_cpu").returncode == 0
    (install,) = checkout.calls("uv")
    assert install.startswith(f"uv pip install --python {checkout.root}/.venv/bin/python -c ")
    assert not checkout.calls(INSTALL)
    python = checkout.root / ".venv/bin/python"  # a package is missing, and uv brings no pip
    python.write_text(STUB.replace("case", "[[ $call != *', pip' ]] || exit 1\ncase", 1))
    assert checkout.run("run_pretrain.sh", "tiny_cpu").returncode == 0
    assert len(checkout.calls(VENV)) == 1 and len(checkout.calls("uv")) == 2


def test_tests_add_their_packages_once_and_cover_the_trainer_too(checkout):
    for script in ("run_pretrain.sh", "run_tests.sh", "run_tests.sh", "run_pretrain.sh"):
        assert checkout.run(script, "tiny_cpu").returncode == 0
    assert checkout.run("run_tests.sh", "--all").returncode == 0
    assert checkout.run("run_tests.sh").returncode == 0
    installed = [call.rpartition("checkout")[2] for call in checkout.calls(INSTALL)]
    assert installed == ["", "[test]", "[test,clients]"]


def test_a_failed_installation_is_continued_by_the_next_start(checkout):
    result = checkout.run("run_pretrain.sh", "tiny_cpu", STUB_FAILS="*pip install*")
    assert result.returncode == 1 and "what is wrong" in result.stderr
    assert ".venv cannot be set up" in result.stderr and "start again" in result.stderr
    assert checkout.run("run_pretrain.sh", "tiny_cpu").returncode == 0
    assert len(checkout.calls(VENV)) == 1


def test_a_newer_python_beside_an_old_one_is_taken_and_too_old_ones_are_refused(checkout):
    refused = checkout.run("run_pretrain.sh", STUB_IS_OLD="yes")
    assert refused.returncode == 1 and "needs Python 3.11 to 3.14: install it" in refused.stderr
    checkout.program("python3", "#!/usr/bin/env bash\nexit 1\n")
    checkout.program("python3.12")
    checkout.run("run_pretrain.sh", "tiny_cpu")
    assert checkout.calls(VENV)[0].startswith("python3.12 ")


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_is_left_alone_if_it_is_complete_and_keeps_what_it_has(
    checkout, variable
):
    active = checkout.root.parent / "active"
    (active / "bin").mkdir(parents=True)
    python = active / "bin/python"
    python.write_text(
        f'#!{checkout.bin}/bash\n[[ $1 != -m ]] && exec {sys.executable} "$@"\n'
        'echo "active $*" >>"$CALLS"\n'
    )
    python.chmod(0o755)
    result = checkout.run("run_pretrain.sh", "tiny_cpu", **{variable: str(active)})
    assert result.returncode == 0 and result.stderr == ""
    assert checkout.calls() == ["active -m tupelo train tiny_cpu"]
    project = checkout.root / "pyproject.toml"
    more = 'dependencies = ["absent-package>=1",'
    project.write_text(project.read_text().replace("dependencies = [", more, 1))
    checkout.run("run_pretrain.sh", "tiny_cpu", **{variable: str(active)})
    (install,) = checkout.calls("active -m pip install")
    assert " -c " not in install and not (checkout.root / ".venv").exists()


@pytest.mark.parametrize(
    ("elsewhere", "active", "hint"),
    [
        (False, False, ".venv/bin/tupelo"),
        (False, True, ""),
        (True, False, "{root}/.venv/bin/tupelo"),
    ],
)
def test_hints_name_a_command_of_the_callers_shell(checkout, elsewhere, active, hint):
    checkout.run("run_pretrain.sh", "tiny_cpu")
    programs = checkout.root / ".venv/bin"
    (programs / "tupelo").symlink_to("/bin/true")
    (programs / "python").write_text('#!/usr/bin/env bash\necho "${TUPELO_COMMAND:-}"\n')
    search = f"{programs}:{checkout.bin}" if active else str(checkout.bin)
    cwd = "/" if elsewhere else checkout.root
    run = checkout.run("run_pretrain.sh", "tiny_cpu", cwd=cwd, PATH=search)
    assert run.stdout.splitlines()[-1] == hint.format(root=checkout.root)


def test_the_base_of_conda_is_not_ours(checkout):
    variables = {"CONDA_PREFIX": "/nowhere/conda", "CONDA_DEFAULT_ENV": "base"}
    assert checkout.run("run_pretrain.sh", "tiny_cpu", **variables).returncode == 0
    assert checkout.calls(VENV) and not checkout.calls(".*/nowhere")


# ---- run_pretrain.sh and run_finetune.sh


@pytest.mark.parametrize(
    ("script", "commands", "others"),
    [
        ("run_pretrain.sh", (train, sweep), {"--section.name", "--arms", "--smoke"}),
        ("run_finetune.sh", (finetune_run,), set()),
    ],
)
def test_help_is_the_header_installs_nothing_and_tells_options_that_there_are(
    checkout, script, commands, others
):
    result = checkout.run(script, "--help")
    assert result.returncode == 0 and checkout.calls() == []
    assert "set -e" not in result.stdout and "#" not in result.stdout
    known = others | {"--help"}
    for command in commands:
        parser = CommandParser()
        command.add_arguments(parser)
        known |= set(parser._option_string_actions)
    named = set(re.findall(r"--[a-z][\w.-]*\w", result.stdout))
    assert len(named) > 8 and named <= known


@pytest.mark.parametrize(
    ("words", "started"),
    [
        ("", "sweep"),
        ("--name x --corpus a b --steps 7", "sweep --name x --corpus a b --steps 7"),
        ("--arms bert_a mine --seeds 3", "sweep bert_a mine --seeds 3"),
        ("--seeds 1 2 --arms=bert_a tupe_r --dry-run", "sweep bert_a tupe_r --seeds 1 2 --dry-run"),
        ("--dry-run --smoke x", "sweep smoke --dry-run x"),
        ("tiny_cpu --resume --a.b -1 --gpus 2", "train tiny_cpu --resume --a.b -1 --gpus 2"),
        ("tiny_cpu --help", "train tiny_cpu --help"),
    ],
)
def test_everything_is_passed_on_to_train_or_to_sweep(checkout, words, started):
    assert checkout.run("run_pretrain.sh", *words.split()).returncode == 0
    assert checkout.started() == [started]


def test_arms_without_a_recipe_are_refused(checkout):
    result = checkout.run("run_pretrain.sh", "--arms", "--seeds", "3")
    assert result.returncode == 1 and "--arms names no recipe" in result.stderr
    assert checkout.calls() == []


@pytest.mark.parametrize(
    ("script", "command"), [("run_pretrain.sh", "train"), ("run_finetune.sh", "finetune run")]
)
def test_words_paths_and_the_status_are_those_of_the_caller(checkout, tmp_path, script, command):
    checkout.run(script, "x")
    python = checkout.root / ".venv/bin/python"
    noting = '[[ $1 == - ]] && exit\nprintf "<%s>" "$PWD" "$PYTHONPATH" "${@:3}"\nexit 3\n'
    python.write_text(f"#!/usr/bin/env bash\n{noting}")
    result = checkout.run(script, "runs/a b", "--to", "7 7", cwd=tmp_path)
    expected = [tmp_path, checkout.root, *command.split(), "runs/a b", "--to", "7 7"]
    assert result.stdout == "".join(f"<{word}>" for word in expected)
    assert result.returncode == 3


# ---- run_tests.sh and .ci/run


def test_every_check_runs_in_order_and_pytest_in_two_processes(checkout):
    result = checkout.run(".ci/run", cwd="/")
    assert result.returncode == 0, result.stderr
    rooms = ("benchmarks", "benchmarks/against_hugging_face", "benchmarks/gpu", "paper")
    *calls, dry_run = checkout.calls("ruff|mypy|pytest|gpu.sh")
    assert dry_run.startswith("gpu.sh --dry-run ")
    assert calls == [
        "ruff check .",
        "ruff format --check .",
        "mypy ",
        *(f"mypy {room}/*.py" for room in rooms),
        "pytest -m not gpu -n 2 --dist worksteal --durations 10",
    ]


def test_arguments_go_to_pytest_and_the_first_failing_check_ends_the_tests(checkout):
    checkout.run("run_tests.sh", "-k", "shards")
    assert checkout.calls("pytest") == ["pytest -k shards"]
    assert checkout.run("run_tests.sh", STUB_FAILS="mypy *").returncode == 3
    assert checkout.calls("pytest") == ["pytest -k shards"]
