"""The run_*.sh scripts, in a copy of the checkout whose PATH holds stubs that note their calls."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ("environment.sh", "run_pretrain.sh", "run_finetune.sh", "run_tests.sh")
SCRIPTS += ("pyproject.toml", "constraints.txt")
TOOLS = ["bash", "cat", "cksum", "cp", "date", "dirname", "env", "grep", "mkdir", "rm", "sed"]
TOOLS += ["sleep", "tail", "tee", "touch"]
VENV, INSTALL, TRAIN = r"\S+ -m venv", r"\S+ -m pip install", ".* pretrain train"
ARMS = ["bert_a", "tupe_r", "tupe_r_pld"]

# Stands for every program: python3, .venv/bin/python, deepspeed, ruff, mypy and pytest.
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
  *' prepare '*)
    if [[ -n ${STUB_WAITS_IN_PREPARE:-} ]]; then
      for name in INT TERM USR1; do trap "echo heard $name >>$CALLS; exit 5" "$name"; done
      touch "$CALLS.waiting"; while :; do sleep 0.02; done
    fi ;;
  *' train '*--run-folder*)
    folder=${call#*--run-folder } folder=${folder%% *}
    mkdir -p "$folder"; touch "$folder/run.json"
    if [[ -n ${STUB_WAITS:-} ]]; then
      for name in INT TERM USR1; do trap "echo heard $name >>$CALLS; exit 0" "$name"; done
      touch "$CALLS.waiting"; while :; do sleep 0.02; done
    fi
    [[ -n ${STUB_NO_RESULT:-} ]] || touch "$folder/result.json" ;;
esac
"""


# Stands for a rank. Bash cannot trap what it was told to ignore, as the launcher is.
RANK = f"""#!{sys.executable}
import os, signal, sys
from pathlib import Path

def note(text):
    with open(os.environ["CALLS"], "a") as file:
        file.write(text + "\\n")

def hear(number, frame):
    note("heard " + signal.Signals(number).name)
    sys.exit(0)

signal.signal(signal.SIGTERM, hear)
note("ready")
if Path(os.environ["CALLS"]).read_text().count("ready") == 2:
    Path(os.environ["CALLS"] + ".waiting").touch()
while True:
    signal.pause()
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
        for name in ("python3", "deepspeed", "ruff", "mypy", "pytest"):
            self.program(name)
        self.environment = {"PATH": str(self.bin), "CALLS": str(self.log)}

    def program(self, name, text=STUB):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def gpus(self, count):
        lines = "".join(f"echo 'GPU {n}: NVIDIA H200 (UUID: GPU-{n})'\n" for n in range(count))
        self.program("nvidia-smi", f"#!/usr/bin/env bash\n{lines}")

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

    def runs(self):
        return self.calls(".* pretrain (prepare|train|compare)")


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
        "active -m pretrain prepare tiny_cpu",
        "active -m pretrain train tiny_cpu",
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


def test_without_a_recipe_the_arms_run_in_order_with_the_same_settings(checkout):
    shared = "--corpus a b --steps 7"
    result = checkout.run("run_pretrain.sh", "--name", "x", *shared.split())
    assert result.returncode == 0, result.stderr
    assert checkout.runs() == [
        f"python -m pretrain prepare bert_a {shared}",
        *(f"python -m pretrain train {arm} {shared} --run-folder runs/x/{arm}" for arm in ARMS),
        "python -m pretrain compare runs/x/bert_a runs/x/tupe_r runs/x/tupe_r_pld "
        "--report runs/x/report",
    ]
    *_, first, second, third, last = result.stdout.splitlines()
    assert first.startswith("[1/3] bert_a: ") and third.startswith("[3/3] tupe_r_pld: ")
    assert second.startswith("[2/3] tupe_r: ")
    for part in ("runs/x/report", "--logdir runs/x", "--resume --name x"):
        assert part in last


def test_a_comparison_without_a_name_is_named_after_the_time(checkout):
    checkout.run("run_pretrain.sh")
    (folder,) = (checkout.root / "runs").iterdir()
    assert time.strptime(folder.name, "compare-%Y%m%d-%H%M%S")


def test_resume_skips_finished_arms_resumes_begun_ones_and_restores_the_settings(checkout):
    failing = {"STUB_FAILS": "*train tupe_r *", "STUB_SAYS": "out of memory"}
    stopped = checkout.run("run_pretrain.sh", "--name", "x", "--steps", "7 7", **failing)
    assert stopped.returncode == 3
    assert stopped.stderr.splitlines()[-1].endswith("./run_pretrain.sh --resume --name x")
    assert [call.split()[4] for call in checkout.calls(TRAIN)] == ARMS[:2]
    (checkout.root / "runs/x/tupe_r").mkdir()
    (checkout.root / "runs/x/tupe_r/run.json").touch()
    checkout.log.unlink()
    result = checkout.run("run_pretrain.sh", "--resume", "--name", "x")
    assert result.returncode == 0, result.stderr
    assert "[1/3] bert_a: finished before" in result.stdout
    assert checkout.calls(TRAIN) == [
        "python -m pretrain train tupe_r --steps 7 7 --run-folder runs/x/tupe_r --resume",
        "python -m pretrain train tupe_r_pld --steps 7 7 --run-folder runs/x/tupe_r_pld",
    ]


def test_a_comparison_is_not_resumed_with_other_settings(checkout):
    checkout.run("run_pretrain.sh", "--name", "x", "--steps", "7")
    again = ("run_pretrain.sh", "--resume", "--name", "x")
    assert_one_line(checkout.run(*again, "--steps", "8"), "other settings", "--steps 7")
    assert checkout.run(*again, "--steps", "7").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--resume"], ["--name"]),
        (["--resume", "--name", "absent"], ["runs/absent"]),
        (["--name", "begun"], ["--resume --name begun"]),
        (["--name", "a b"], ["'a b'"]),
        (["--run-folder", "f"], ["--run-folder", "RECIPE"]),
        (["--lengthen", "stretch"], ["--lengthen", "folder of a run"]),
        (["--name"], ["--name needs a value"]),
        (["--gpus", "two"], ["--gpus two"]),
        (["--gpus", "2"], ["--gpus 2", "0 NVIDIA GPUs"]),
        (["--hostfile", "absent"], ["--hostfile absent"]),
    ],
)
def test_a_wrong_option_ends_in_one_line_before_anything_is_installed(checkout, arguments, parts):
    (checkout.root / "runs/begun/bert_a").mkdir(parents=True)
    (checkout.root / "runs/begun/bert_a/run.json").touch()
    assert_one_line(checkout.run("run_pretrain.sh", *arguments), *parts)
    assert checkout.calls() == []


def test_an_arm_that_ends_without_a_result_ends_the_script(checkout):
    result = checkout.run("run_pretrain.sh", "--name", "x", STUB_NO_RESULT="1")
    assert result.returncode == 1 and "bert_a ended without a result" in result.stderr
    assert len(checkout.calls(TRAIN)) == 1


def test_a_recipe_is_prepared_and_trained_with_everything_passed_on(checkout):
    checkout.run(
        "run_pretrain.sh", "tiny_cpu", "--resume", "--run-folder=f", "--name", "n", "--a.b", "-1"
    )
    assert checkout.runs() == [
        "python -m pretrain prepare tiny_cpu --a.b -1 --name n",
        "python -m pretrain train tiny_cpu --a.b -1 --name n --run-folder f --resume",
    ]


def test_a_run_is_lengthened_by_the_trainer_alone(checkout):
    checkout.run("run_pretrain.sh", "runs/a", "--resume", "--steps", "9", "--lengthen=restart")
    assert checkout.runs() == [
        "python -m pretrain prepare runs/a --steps 9",
        "python -m pretrain train runs/a --steps 9 --resume --lengthen restart",
    ]


@pytest.mark.parametrize("option", ["--dry-run", "--help"])
def test_a_dry_run_and_the_help_of_a_recipe_need_neither_data_nor_launcher(checkout, option):
    checkout.gpus(2)
    checkout.run("run_pretrain.sh", "tiny_cpu", "--steps", "7", option)
    assert checkout.runs() == [f"python -m pretrain train tiny_cpu --steps 7 {option}"]


def test_a_dry_run_of_the_comparison_shows_every_arm_and_leaves_nothing(checkout):
    checkout.run("run_pretrain.sh", "--dry-run")
    assert checkout.runs() == [f"python -m pretrain train {arm} --dry-run" for arm in ARMS]
    assert not (checkout.root / "runs").exists()


@pytest.mark.parametrize(
    ("gpus", "arguments", "launched"),
    [
        (2, [], "deepspeed --module pretrain"),
        (2, ["--gpus", "1"], "deepspeed --num_gpus 1 --module pretrain"),
        (0, ["--hostfile", "hosts"], "deepspeed --hostfile hosts --module pretrain"),
        (
            0,
            ["--hostfile", "hosts", "--gpus", "4"],
            "deepspeed --num_gpus 4 --hostfile hosts --module pretrain",
        ),
    ],
)
def test_gpus_and_hosts_are_launched_by_deepspeed(checkout, gpus, arguments, launched):
    checkout.gpus(gpus)
    (checkout.root / "hosts").write_text("one slots=4\n")
    result = checkout.run("run_pretrain.sh", "tiny_cpu", "--run-folder", "f", *arguments)
    assert result.returncode == 0, result.stderr
    assert checkout.runs() == [
        "python -m pretrain prepare tiny_cpu",
        f"{launched} train tiny_cpu --run-folder f",
    ]


@pytest.mark.parametrize("listing", ["exit 9", "echo No devices were found; exit 6"])
def test_a_driver_without_a_gpu_is_a_cpu(checkout, listing):
    checkout.program("nvidia-smi", f"#!/usr/bin/env bash\n{listing}\n")
    assert checkout.run("run_pretrain.sh", "tiny_cpu").returncode == 0
    assert checkout.runs()[-1] == "python -m pretrain train tiny_cpu"


def test_hidden_gpus_are_not_used(checkout):
    checkout.gpus(2)
    checkout.run("run_pretrain.sh", "tiny_cpu", CUDA_VISIBLE_DEVICES="")
    assert checkout.runs()[-1] == "python -m pretrain train tiny_cpu"


def test_paths_that_exist_in_the_callers_folder_are_taken_from_there(checkout, tmp_path):
    caller = tmp_path / "caller"
    (caller / "texts").mkdir(parents=True)
    for name in ("my.toml", "base", "bert_a", "bert.pt"):
        (caller / name).touch()
    options = ["--corpus", "texts", "more", "--model.preset", "base", "--run-folder", "out"]
    options += ["--initial_weights", "bert.pt"]
    checkout.run("run_pretrain.sh", "my.toml", *options, cwd=caller)
    assert checkout.runs()[1] == (
        f"python -m pretrain train {caller}/my.toml --corpus {caller}/texts more "
        f"--model.preset base --initial_weights {caller}/bert.pt --run-folder out"
    )


class Waiting:
    """A run_pretrain.sh whose trainer waits for a signal."""

    def __init__(self, checkout, *arguments, waits="STUB_WAITS"):
        self.process = subprocess.Popen(
            [checkout.root / "run_pretrain.sh", *arguments],
            env=checkout.environment | {waits: "1"},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A test run in the background ignores interrupts, and bash could not unlearn that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        waiting = Path(f"{checkout.log}.waiting")
        deadline = time.monotonic() + 20
        while not waiting.exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def end(self):
        """Return exit status and last line of stderr."""
        _, stderr = self.process.communicate(timeout=20)
        return self.process.returncode, (stderr.splitlines() or [""])[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_trainer_and_ends_the_comparison_and_not_only_the_arm(
    checkout, number
):
    """As the terminal does it, which signals the whole group of the script."""
    waiting = Waiting(checkout, "--name", "x")
    os.killpg(waiting.process.pid, number)
    status, line = waiting.end()
    assert status == 0 and line.endswith("--resume --name x")
    assert len(checkout.calls(TRAIN)) == 1
    assert checkout.calls("heard") == [f"heard {number.name[3:]}"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("arguments", [("tiny_cpu",), ("--name", "x")])
def test_a_signal_ends_the_preparation_of_data_too(checkout, arguments, number):
    waiting = Waiting(checkout, *arguments, waits="STUB_WAITS_IN_PREPARE")
    waiting.process.send_signal(number)
    assert waiting.end() == (5, "stopped; the same command continues from here")
    assert checkout.calls("heard") == [f"heard {number.name[3:]}"]
    assert not checkout.calls(TRAIN)


def test_a_signal_reaches_the_trainer_of_a_recipe(checkout):
    waiting = Waiting(checkout, "tiny_cpu", "--run-folder", "f")
    waiting.process.send_signal(signal.SIGUSR1)
    assert waiting.end()[0] == 0
    assert checkout.calls("heard") == ["heard USR1"]


def test_a_signal_reaches_the_ranks_and_not_their_launcher(checkout):
    """The launcher is two processes, one below the other, and would kill the ranks in time."""
    checkout.gpus(2)
    rank, launch = checkout.bin / "rank", checkout.bin / "deepspeed.launcher.launch"
    checkout.program("rank", RANK)
    launch.write_text(f'"{rank}" "$@" &\n"{rank}" "$@" &\nwait\n')
    checkout.program("deepspeed", f'#!/usr/bin/env bash\nbash "{launch}" "$@"; exit $?\n')
    waiting = Waiting(checkout, "tiny_cpu", "--run-folder", "f")
    os.killpg(waiting.process.pid, signal.SIGTERM)
    assert waiting.end()[0] == 0
    assert checkout.calls("heard") == ["heard SIGTERM"] * 2


def test_a_signal_ends_a_launcher_that_has_not_started_a_rank(checkout):
    checkout.gpus(1)
    waiting = Waiting(checkout, "tiny_cpu", "--run-folder", "f")
    waiting.process.send_signal(signal.SIGTERM)
    assert waiting.end()[0] == 128 + signal.SIGKILL
    assert checkout.calls("heard") == []


# ---- run_finetune.sh


def test_help_of_fine_tuning_is_the_header_and_installs_nothing(checkout):
    for arguments in ([], ["--help"]):
        result = checkout.run("run_finetune.sh", *arguments)
        assert result.returncode == 0 and checkout.calls() == []
        for option in ("--tasks", "--train, --dev, --test", "--protocol", "--retry-failed"):
            assert f"  {option}" in result.stdout
        assert "set -e" not in result.stdout and "#" not in result.stdout


def test_the_help_tells_only_options_of_fine_tuning_that_there_are(checkout):
    from finetune.commands import run
    from pretrain.config.recipe import CommandParser

    parser = CommandParser()
    run.add_arguments(parser)
    told = set(re.findall(r"--[a-z-]+", checkout.run("run_finetune.sh").stdout))
    assert told <= set(parser._option_string_actions)
    assert told >= {f"--{name}" for name in ("from-scratch", "to", "workers", "regression", "name")}


def test_arguments_of_fine_tuning_are_passed_on(checkout):
    words = "runs/a runs/b --tasks cola rte --glue hub --learning-rates 2e-5 5e-5 --to=out"
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
    checkout.run("run_finetune.sh", "--regression", "mine", "runs/b", cwd=caller)
    assert checkout.calls(".* finetune") == [
        f"python -m finetune run {caller}/mine runs/b --train {caller}/train.tsv --dev dev.tsv "
        f"--text text --protocol {caller}/p.toml",
        f"python -m finetune run --regression {caller}/mine runs/b",
    ]


def test_the_flags_of_fine_tuning_are_those_without_a_value(checkout):
    from finetune.commands import run
    from pretrain.config.recipe import CommandParser

    parser = CommandParser()
    run.add_arguments(parser)
    flags = {action.option_strings[0] for action in parser._actions if action.nargs == 0}
    listed = re.search("^FLAGS='(.*?)'", (ROOT / "run_finetune.sh").read_text(), re.MULTILINE)
    assert {f"--{name}" for name in listed[1].split("|")} == flags - {"-h"}


def test_the_exit_status_of_a_grid_with_failed_runs_is_passed_on(checkout):
    failing = {"STUB_FAILS": "*finetune run*", "STUB_SAYS": "failed: RTE"}
    assert checkout.run("run_finetune.sh", "runs/a", **failing).returncode == 3


# ---- run_tests.sh and .ci/run


def test_every_check_runs_in_order_and_pytest_last_in_two_processes(checkout):
    result = checkout.run(".ci/run", cwd="/")
    assert result.returncode == 0, result.stderr
    assert checkout.calls("ruff|mypy|pytest") == [
        "ruff check .",
        "ruff format --check .",
        "mypy ",
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
