"""What can be checked of the examples without a queue, a container or a second machine."""

import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

# Stand for Slurm: srun runs its command once for every task, as Slurm would with two of them.
SRUN = """#!/usr/bin/env bash
tasks=2
while [[ $1 == --* ]]; do [[ $1 != --ntasks=1 ]] || tasks=1; shift; done
for ((task = 0; task < tasks; task++)); do
  SLURM_PROCID=$task SLURM_LOCALID=$task "$@" || exit
done
"""
SCONTROL = """#!/usr/bin/env bash
[[ $1 == show ]] && printf 'first\\nsecond\\n' || echo "scontrol $*" >>"$CALLS"
"""
TUPELO = """#!/usr/bin/env bash
echo "${RANK-none}/${WORLD_SIZE-none} $MASTER_ADDR tupelo $*" >>"$CALLS"
[[ $1 != train ]] || { mkdir -p runs/x; touch runs/x/run.json; }
[[ ! -e finishes ]] || touch runs/x/result.json
exit "${STATUS-0}"
"""


@pytest.fixture
def job(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("tupelo", TUPELO)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    calls = tmp_path / "calls"
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n", "SLURM_NTASKS": "2"}
    search = f"{programs}:/usr/bin:/bin"

    def run(*words, **more):
        calls.write_text("")
        done = subprocess.run(
            [EXAMPLES / "slurm.sh", *words],
            cwd=tmp_path,
            env={"PATH": search, "CALLS": str(calls), "SLURM_NNODES": "1", **variables, **more},
            capture_output=True,
            text=True,
        )
        return done.returncode, calls.read_text().splitlines()

    return run


WORDS = ["runs/x", "tupe_base", "--corpus", "my texts"]


def test_a_job_that_is_stopped_queues_again_and_resumes(job, tmp_path):
    status, calls = job(*WORDS)
    train = "train tupe_base --corpus my texts --run-folder runs/x"
    assert status == 0 and calls == [
        "none/none first tupelo prepare tupe_base --corpus my texts",
        f"0/2 first tupelo {train}",
        f"1/2 first tupelo {train}",
        "scontrol requeue 7",
    ]
    (tmp_path / "finishes").touch()
    status, calls = job(*WORDS)
    resume = "first tupelo train runs/x --resume"
    assert status == 0 and calls == [f"0/2 {resume}", f"1/2 {resume}"]


def test_a_job_that_is_stopped_before_training_began_queues_again(job):
    status, calls = job(*WORDS, STATUS="138")
    assert [call.split()[-1] for call in calls] == ["texts", "7"] and "requeue" in calls[1]


def test_a_job_that_fails_does_not_queue_again(job):
    status, calls = job(*WORDS, STATUS="1")
    assert status == 1 and not [call for call in calls if "requeue" in call]


def test_the_slurm_example_explains_itself_outside_a_job(job):
    status, calls = job(SLURM_JOB_ID="")
    assert status == 2 and calls == []


def test_the_container_gets_every_file_that_it_copies_and_nothing_else():
    sources = {
        word
        for line in re.findall(r"^COPY (.*)", (EXAMPLES / "Dockerfile").read_text(), re.M)
        for word in line.split()[:-1]
    }
    assert all((ROOT / source).exists() for source in sources)
    ignored = (EXAMPLES / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == sources


def test_the_hostfile_is_one_that_deepspeed_reads():
    from deepspeed.launcher.runner import fetch_hostfile

    assert fetch_hostfile(str(EXAMPLES / "hostfile")) == {"worker-1": 8, "worker-2": 8}


def test_the_layer_drop_example_learns_from_an_old_configuration(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("layer drop skips blocks. " * 100)
    words = [str(EXAMPLES / "layer_drop_bert.py"), str(text), "--steps", "40", "--zero", "3"]
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = re.compile(r"step \d+: loss ([\d.]+), theta ([\d.]+), (\d+)% ran")
    losses, thetas, shares = zip(
        *(map(float, found) for found in line.findall(done.stdout)), strict=True
    )
    assert losses[-1] < losses[0] < math.log(257)
    assert thetas == tuple(
        round(0.5 + 0.5 * math.exp(-0.05 * (n - 1)), 2) for n in (10, 20, 30, 40)
    )
    # sum over steps and blocks of 1 - (l/8)(1 - theta), and the scatter of 8 x 40 coins
    assert 70 < shares[-1] < 95


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_shell_scripts_have_no_known_mistakes():
    scripts = [*ROOT.glob("*.sh"), *EXAMPLES.glob("*.sh")]
    subprocess.run(["shellcheck", "--severity=warning", *scripts], check=True)
