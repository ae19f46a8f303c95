"""The run_*.sh scripts, in a copy of the checkout whose PATH holds stubs that note their calls."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ("environment.sh", "run_pretrain.sh", "run_finetune.sh", "run_tests.sh")
SCRIPTS += ("pyproject.toml", "constraints.txt")
TOOLS = ["bash", "cat", "cksum", "cp", "date", "dirname", "env", "grep", "mkdir", "rm", "sed"]
TOOLS += ["mktemp", "sleep", "tail", "tee", "touch"]
VENV, INSTALL = r"\S+ -m venv", r"\S+ -m pip install"

# Stands for every program: python3, .venv/bin/python, ruff, mypy and pytest.
STUB = r"""#!/usr/bin/env bash
here=$(dirname "$0") call="${0##*/} $*"
case $call in
  python*' -c import'*) echo "${STUB_VERSION-3.11}"; exit ;;
  python*'-m pip --version') [[ -e $here/pip ]]; exit ;;
esac
echo "$call" >>"$CALLS"
[[ -z ${STUB_FAILS:-} || $call != $STUB_FAILS ]] || { echo "$STUB_SAYS"; exit 3; }
case $call in
  *'-m venv'*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
  *'-m ensurepip'*) touch "$here/pip" ;;
esac
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


def assert_one_line(result, *parts):
    """Check that the script ended with exactly one line of error, with these parts in it."""
    lines = [line for line in result.stderr.splitlines() if not line.endswith(" ...")]
    assert result.returncode == 1 and len(lines) == 1, result
    assert lines[0].startswith("error: ")
    for part in parts:
        assert part in lines[0]


# ---- environment.sh


def test_the_first_start_makes_an_environment_with_the_pinned_packages(checkout):
    result = checkout.run("run_pretrain.sh", "tiny_cpu")
    assert result.returncode == 0, result.stderr
    assert "about two minutes" in result.stderr
    venv, pip, install = checkout.calls()[:3]
    assert venv == f"python3 -m venv --without-pip {checkout.root}/.venv"
    assert "ensurepip" in pip
    assert install.endswith("-c constraints.txt -e .")


def test_a_second_start_installs_nothing_and_says_nothing(checkout):
    checkout.run("run_pretrain.sh", "tiny_cpu")
    before = len(checkout.calls(f"{VENV}|{INSTALL}"))
    assert checkout.run("run_pretrain.sh", "tiny_cpu").stderr == ""
    assert len(checkout.calls(f"{VENV}|{INSTALL}")) == before


def test_the_tests_add_their_packages_once_and_cover_the_trainer_too(checkout):
    for script in ("run_pretrain.sh", "run_tests.sh", "run_tests.sh", "run_pretrain.sh"):
        assert checkout.run(script, "tiny_cpu").returncode == 0
    installed = [call.split()[-1] for call in checkout.calls(INSTALL)]
    assert installed == [".", ".[test]"]


def test_all_tests_add_the_programs_that_use_exports_and_cover_the_others(checkout):
    for words in (["--all"], [], ["--all"]):
        assert checkout.run("run_tests.sh", *words).returncode == 0
    installed = [call.split()[-1] for call in checkout.calls(INSTALL)]
    assert installed == [".[test,clients]"]


@pytest.mark.parametrize(
    ("elsewhere", "active", "hint"),
    [
        (False, False, ".venv/bin/tupelo"),
        (False, True, "tupelo"),
        (True, False, "cd {root} && .venv/bin/tupelo"),
        (True, True, "cd {root} && tupelo"),
    ],
)
def test_hints_name_a_command_of_the_callers_shell(checkout, elsewhere, active, hint):
    programs = checkout.root / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "tupelo").symlink_to("/bin/true")
    search = f"{programs}:{checkout.bin}" if active else str(checkout.bin)
    caller = "/" if elsewhere else checkout.root
    words = (
        f'caller={caller}; . ./environment.sh; name_command "$PWD/.venv"; echo "$TUPELO_COMMAND"'
    )
    run = subprocess.run(
        ["/bin/bash", "-euc", words],
        cwd=checkout.root,
        env={"PATH": search},
        capture_output=True,
        check=True,
        text=True,
    )
    assert run.stdout == hint.format(root=checkout.root) + "\n"


def test_changed_pins_are_installed_at_the_next_start(checkout):
    checkout.run("run_pretrain.sh", "tiny_cpu")
    (checkout.root / "constraints.txt").write_text("torch==2.13.1\n")
    checkout.run("run_pretrain.sh", "tiny_cpu")
    assert len(checkout.calls(INSTALL)) == 2


def test_too_old_a_python_is_named(checkout):
    result = checkout.run("run_pretrain.sh", STUB_VERSION="3.9")
    assert_one_line(result, "3.11 or newer", "3.9", "install it")
    assert not (checkout.root / ".venv").exists()


def test_a_newer_python_beside_an_old_one_is_taken(checkout):
    checkout.program("python3", "#!/usr/bin/env bash\necho 3.9\n")
    checkout.program("python3.12")
    checkout.run("run_pretrain.sh", "tiny_cpu")
    assert checkout.calls(VENV)[0].startswith("python3.12 ")


def test_a_missing_python_is_named(checkout):
    (checkout.bin / "python3").unlink()
    assert_one_line(checkout.run("run_pretrain.sh"), "no python3 on PATH", "apt install python3")


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        ("ERROR: No matching distribution found for torch", "see the log"),
        ("WARNING: Retrying after connection broken by x\nERROR: No torch", "check the network"),
        ("ERROR: OSError: [Errno 28] No space left on device", "free some disk space"),
        ("ERROR: Operation cancelled by user", "interrupted"),
    ],
)
def test_a_failing_pip_is_explained_in_one_line_and_continued_by_the_next_start(
    checkout, says, advice
):
    failing = {"STUB_FAILS": "*pip install*", "STUB_SAYS": says}
    result = checkout.run("run_pretrain.sh", "tiny_cpu", **failing)
    log = checkout.root / ".venv/install.log"
    assert_one_line(result, says.splitlines()[-1], advice, "start again", str(log))
    assert log.read_text() == f"{says}\n"
    assert checkout.run("run_pretrain.sh", "tiny_cpu").returncode == 0
    assert len(checkout.calls(VENV)) == 1


def test_a_debian_without_ensurepip_is_told_the_package_and_continues_after_it(checkout):
    failing = {"STUB_FAILS": "*ensurepip*", "STUB_SAYS": "python: No module named ensurepip"}
    result = checkout.run("run_pretrain.sh", "tiny_cpu", **failing)
    assert_one_line(result, "apt install python3-venv")
    assert checkout.run("run_pretrain.sh", "tiny_cpu").returncode == 0


def test_a_half_made_environment_is_named_with_the_way_out(checkout):
    (checkout.root / ".venv/bin").mkdir(parents=True)
    (checkout.root / ".venv/bin/python").symlink_to("/nonexistent/python3")
    assert_one_line(checkout.run("run_pretrain.sh"), "half-made", "rm -rf .venv", "start again")


def real_environment(checkout):
    """Return a folder that looks like an active environment with this interpreter's packages."""
    folder = checkout.root.parent / "active"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin/python"
    python.write_text(
        f'#!{checkout.bin}/bash\n[[ $1 != -m ]] && exec {sys.executable} "$@"\n'
        'echo "active $*" >>"$CALLS"\n'
    )
    python.chmod(0o755)
    return folder


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_that_has_everything_is_used_as_it_is(checkout, variable):
    active = real_environment(checkout)
    result = checkout.run("run_pretrain.sh", "tiny_cpu", **{variable: str(active)})
    assert result.returncode == 0 and result.stderr == ""
    assert checkout.log.read_text().splitlines() == [
        "active -m tupelo train tiny_cpu",
    ]
    assert not (checkout.root / ".venv").exists()


def test_an_active_environment_gets_what_it_lacks_and_keeps_what_it_has(checkout):
    active = real_environment(checkout)
    project = checkout.root / "pyproject.toml"
    more = 'dependencies = ["absent-package>=1",'
    project.write_text(project.read_text().replace("dependencies = [", more, 1))
    (checkout.root / "constraints.txt").write_text("Absent-Package==1.2\ntorch==0.1\nother-x==3\n")
    result = checkout.run("run_pretrain.sh", "tiny_cpu", VIRTUAL_ENV=str(active))
    assert "Missing in the active environment: absent-package" in result.stderr
    pins = active / "tupelo-constraints.txt"
    assert pins.read_text() == "Absent-Package==1.2\nother-x==3\n"
    assert checkout.calls(INSTALL)[0].endswith(f"-c {pins} -e .")
    again = checkout.run("run_pretrain.sh", "tiny_cpu", VIRTUAL_ENV=str(active))
    assert again.stderr == "" and len(checkout.calls(INSTALL)) == 1


def test_an_active_environment_with_an_old_python_is_named(checkout):
    active = real_environment(checkout)
    (active / "bin/python").write_text(f"#!{checkout.bin}/bash\necho 3.10\n")
    result = checkout.run("run_pretrain.sh", VIRTUAL_ENV=str(active))
    assert_one_line(result, str(active), "3.10", "deactivate")


# ---- run_pretrain.sh


def test_help_is_the_header_and_installs_nothing(checkout):
    result = checkout.run("run_pretrain.sh", "--help")
    assert result.returncode == 0 and checkout.calls() == []
    for option in ("--corpus", "--name", "--resume", "--dry-run", "--gpus", "--hostfile"):
        assert f"  {option}" in result.stdout
    assert "set -e" not in result.stdout and "#" not in result.stdout


def test_the_header_explains_only_options_that_there_are(checkout):
    from data_prep.command_line import CommandParser
    from pretrain.commands import sweep, train

    known = {"--section.name", "--arms", "--help"}
    for command in (sweep, train):
        parser = CommandParser()
        command.add_arguments(parser)
        known |= set(parser._option_string_actions)
    header = checkout.run("run_pretrain.sh", "--help").stdout
    assert set(re.findall(r"--[a-z][\w.-]*\w", header)) <= known


@pytest.mark.parametrize(
    ("words", "started"),
    [
        ("", "sweep"),
        ("--name x --corpus a b --steps 7", "sweep --name x --corpus a b --steps 7"),
        ("--arms bert_a mine --seeds 3", "sweep bert_a mine --seeds 3"),
        ("--seeds 1 2 --arms=bert_a tupe_r --dry-run", "sweep bert_a tupe_r --seeds 1 2 --dry-run"),
        ("--smoke --arms bert_a", "sweep bert_a --smoke"),
        ("--hours 2 --arms bert_a mine.toml", "sweep bert_a mine.toml --hours 2"),
        ("tiny_cpu --resume --a.b -1 --gpus 2", "train tiny_cpu --resume --a.b -1 --gpus 2"),
        ("tiny_cpu --run-folder f --hostfile=h", "train tiny_cpu --run-folder f --hostfile h"),
        ("tiny_cpu --help", "train tiny_cpu --help"),
    ],
)
def test_everything_is_passed_on_to_train_or_to_sweep(checkout, words, started):
    assert checkout.run("run_pretrain.sh", *words.split()).returncode == 0
    assert checkout.started() == [started]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--arms --seeds 3", ("--arms names no recipe", "--arms bert_a tupe_r")),
        ("--seeds 3 --arms", ("--arms names no recipe",)),
        ("bert_a --seeds 3", ("--seeds belongs to a comparison", "--arms bert_a")),
        ("bert_a --steps 7 --smoke", ("--smoke belongs to a comparison", "--arms bert_a")),
        ("bert_a --arms=tupe_r", ("--arms belongs to a comparison", "--arms bert_a")),
        ("--dry-run bert_a", ("bert_a comes first: ./run_pretrain.sh bert_a",)),
        ("--hours 1 my.toml", ("my.toml comes first",)),
        ("--hours=1 my.toml", ("my.toml comes first",)),
    ],
)
def test_a_run_is_not_taken_for_a_comparison_nor_a_comparison_for_another(checkout, words, parts):
    assert_one_line(checkout.run("run_pretrain.sh", *words.split()), *parts)
    assert checkout.calls() == []


def test_a_value_with_spaces_stays_one_value(checkout):
    noting = 'printf "<%s>" "$@" >>"$CALLS"\n'
    active = real_environment(checkout)
    python = active / "bin/python"
    python.write_text(python.read_text().replace('echo "active $*" >>"$CALLS"\n', noting))
    words = ("run_pretrain.sh", "tiny_cpu", "--corpus", "a b", "--steps", "7 7")
    checkout.run(*words, VIRTUAL_ENV=str(active))
    assert checkout.log.read_text() == "<-m><tupelo><train><tiny_cpu><--corpus><a b><--steps><7 7>"


def test_the_status_of_the_command_is_that_of_the_script(checkout):
    failing = {"STUB_FAILS": "*tupelo train*", "STUB_SAYS": "out of memory"}
    assert checkout.run("run_pretrain.sh", "tiny_cpu", **failing).returncode == 3


def test_paths_that_exist_in_the_callers_folder_are_taken_from_there(checkout, tmp_path):
    caller = tmp_path / "caller"
    (caller / "texts").mkdir(parents=True)
    for name in ("my.toml", "base", "hosts", "bert.pt"):
        (caller / name).touch()
    options = ["--corpus", "texts", "more", "text:texts:weight=2", "--model.preset", "base"]
    options += ["--initial_weights", "bert.pt", "--hostfile=hosts", "--data.corpus", "more,texts"]
    resolved = (
        f"--corpus {caller}/texts more text:{caller}/texts:weight=2 --model.preset base "
        f"--initial_weights {caller}/bert.pt --hostfile {caller}/hosts "
        f"--data.corpus more,{caller}/texts"
    )
    checkout.run("run_pretrain.sh", "my.toml", *options, cwd=caller)
    checkout.run("run_pretrain.sh", *options, "--arms", "bert_a", "my.toml", cwd=caller)
    assert checkout.started() == [
        f"train {caller}/my.toml {resolved}",
        f"sweep bert_a {caller}/my.toml {resolved}",
    ]


@pytest.mark.parametrize("given", ["--run-folder=out/a", "--run-folder out/a"])
def test_a_run_folder_belongs_to_where_the_caller_stands(checkout, tmp_path, given):
    caller = tmp_path / "caller"
    caller.mkdir()
    checkout.run("run_pretrain.sh", "tiny_cpu", *given.split(), cwd=caller)
    checkout.run("run_pretrain.sh", "tiny_cpu", "--run-folder", "/out", cwd=caller)
    assert checkout.started() == [
        f"train tiny_cpu --run-folder {caller}/out/a",
        "train tiny_cpu --run-folder /out",
    ]


# ---- run_finetune.sh


def test_help_of_fine_tuning_is_the_header_and_installs_nothing(checkout):
    for arguments in ([], ["--help"]):
        result = checkout.run("run_finetune.sh", *arguments)
        assert result.returncode == 0 and checkout.calls() == []
        for option in ("--tasks", "--train, --dev, --test", "--protocol", "--retry-failed"):
            assert f"  {option}" in result.stdout
        assert "set -e" not in result.stdout and "#" not in result.stdout


def test_the_help_tells_only_options_of_fine_tuning_that_there_are(checkout):
    from data_prep.command_line import CommandParser
    from finetune.commands import run

    parser = CommandParser()
    run.add_arguments(parser)
    told = set(re.findall(r"--[a-z-]+", checkout.run("run_finetune.sh").stdout))
    assert told <= set(parser._option_string_actions)
    assert told >= {f"--{name}" for name in ("from-scratch", "to", "workers", "regression", "name")}


def test_arguments_of_fine_tuning_are_passed_on(checkout):
    words = "runs/a runs/b --tasks cola rte --glue hub --learning_rates 2e-5,5e-5 --to=out"
    result = checkout.run("run_finetune.sh", *words.split(), "--name", "a b")
    assert result.returncode == 0, result.stderr
    passed = words.replace("=", " ") + " --name a b"
    assert checkout.calls(".* finetune") == [f"python -m finetune run {passed}"]


def test_files_of_fine_tuning_are_found_from_the_callers_folder(checkout, tmp_path):
    caller = tmp_path / "caller"
    (caller / "mine").mkdir(parents=True)
    for name in ("train.tsv", "text", "p.toml"):
        (caller / name).touch()
    words = "mine runs/b --train train.tsv --dev=dev.tsv --text text --protocol p.toml"
    checkout.run("run_finetune.sh", *words.split(), cwd=caller)
    checkout.run("run_finetune.sh", "--regression", "mine", "runs/b", "--to=out", cwd=caller)
    assert checkout.calls(".* finetune") == [
        f"python -m finetune run {caller}/mine runs/b --train {caller}/train.tsv --dev dev.tsv "
        f"--text text --protocol {caller}/p.toml",
        f"python -m finetune run --regression {caller}/mine runs/b --to {caller}/out",
    ]


def test_the_flags_of_fine_tuning_are_those_without_a_value(checkout):
    from data_prep.command_line import CommandParser
    from finetune.commands import run

    parser = CommandParser()
    run.add_arguments(parser)
    flags = {action.option_strings[0] for action in parser._actions if action.nargs == 0}
    listed = re.search("^FLAGS='(.*?)'", (ROOT / "run_finetune.sh").read_text(), re.MULTILINE)
    assert {f"--{name}" for name in listed[1].split("|")} == flags - {"-h"}


def test_the_exit_status_of_a_grid_with_failed_runs_is_passed_on(checkout):
    failing = {"STUB_FAILS": "*finetune run*", "STUB_SAYS": "failed: RTE"}
    assert checkout.run("run_finetune.sh", "runs/a", **failing).returncode == 3


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


def test_without_all_the_slow_tests_are_left_to_pytests_own_selection(checkout):
    checkout.run("run_tests.sh")
    assert checkout.calls("pytest") == ["pytest -n 2 --dist worksteal --durations 10"]


def test_arguments_go_to_pytest(checkout):
    checkout.run("run_tests.sh", "-k", "shards")
    assert checkout.calls("pytest") == ["pytest -k shards"]


def test_the_first_failing_check_ends_the_tests_with_its_exit_code(checkout):
    result = checkout.run("run_tests.sh", STUB_FAILS="mypy *", STUB_SAYS="a type is wrong")
    assert result.returncode == 3
    assert checkout.calls("pytest") == []
