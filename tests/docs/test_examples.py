"""What can be checked of the examples without a queue, a container or a second machine."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_command import PYTHONPATH, run_module
from tests.pretrain.conftest import shards

__all__ = ["shards"]  # a fixture

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
ranks="${RANK-none}/${WORLD_SIZE-none} ${LOCAL_RANK-none}/${LOCAL_WORLD_SIZE-none}"
echo "$ranks $MASTER_ADDR:$MASTER_PORT tupelo $*" >>"$CALLS"
[[ $1 != train ]] || { mkdir -p runs/x; touch runs/x/run.json; }
[[ ! -e finishes ]] || touch runs/x/result.json
exit "${STATUS-0}"
"""


# Stands for pdsh -S -f N -w FIRST,SECOND COMMAND...: each machine is this one.
PDSH = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do
  [[ $1 != -w ]] || hosts=$2
  [[ $1 == -S ]] && shift || shift 2
done
ids=() number=0
for host in ${hosts//,/ }; do
  bash -c "${*//%n/$number}" &
  ids+=($!)
  number=$((number + 1))
done
for id in "${ids[@]}"; do wait "$id" || exit; done
"""
# Stands for ssh FIRST hostname -I.
SSH = """#!/usr/bin/env bash
echo 127.0.0.1
"""
# tupe_large, but for its size.
SMALL = [
    *("--model.num_layers", "2", "--model.width", "32"),
    *("--model.num_heads", "2", "--model.feedforward_width", "64"),
    *("--model.vocabulary_size", "256", "--data.sequence_length", "32"),
    *("--batch.global_sequences", "8", "--steps", "4", "--checkpoint.pinned", "2"),
    *("--evaluation.rows", "16", "--engine.cpu_kernels", "off"),
]


@pytest.mark.slow("starts two ranks through the launcher, as other tests do on one machine")
@pytest.mark.ranks
def test_a_large_recipe_trains_on_the_machines_of_a_hostfile(shards, tmp_path):
    """As examples/hostfile, with a rank a machine; both machines are this one."""
    hosts, folder, programs = tmp_path / "hosts", tmp_path / "run", tmp_path / "programs"
    hosts.write_text((EXAMPLES / "hostfile").read_text().replace("slots=8", "slots=1"))
    programs.mkdir()
    for name, text in (("pdsh", PDSH), ("ssh", SSH)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    search = os.pathsep.join([str(programs), str(Path(sys.executable).parent), "/usr/bin:/bin"])
    words = ["tupe_large", "--hostfile", hosts, "--data.shards", shards, "--run-folder", folder]
    done = subprocess.run(
        [sys.executable, "-m", "pretrain", "train", *words, *SMALL],
        cwd=ROOT,
        env={
            **{"PATH": search, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"},
            **{"HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "nnodes=2, num_local_procs=1, node_rank=1" in done.stdout
    (launch,) = map(json.loads, (folder / "launches.jsonl").read_text().splitlines())
    assert launch["world_size"] == 2
    assert json.loads((folder / "result.json").read_text())["step"] == 4
    assert (folder / "checkpoints" / "step_00000002").is_dir()


@pytest.fixture
def job(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("tupelo", TUPELO)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    calls = tmp_path / "calls"
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n", "SLURM_NTASKS": "2"}
    variables["SLURM_CPUS_ON_NODE"] = "64"
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
        "none/none none/none first:20007 tupelo prepare tupe_base --corpus my texts",
        f"0/2 0/2 first:20007 tupelo {train}",
        f"1/2 1/2 first:20007 tupelo {train}",
        "scontrol requeue 7",
    ]
    (tmp_path / "finishes").touch()
    status, calls = job(*WORDS)
    resume = "first:20007 tupelo train runs/x --resume --corpus my texts"
    assert status == 0 and calls == [f"{rank}/2 {rank}/2 {resume}" for rank in range(2)]


def test_a_job_that_fails_does_not_queue_again(job):
    status, calls = job(*WORDS, STATUS="1")
    assert status == 1 and not [call for call in calls if "requeue" in call]


def test_the_slurm_example_explains_itself_outside_a_job(job):
    status, calls = job(SLURM_JOB_ID="")
    assert status == 2 and calls == []
    done = subprocess.run([EXAMPLES / "slurm.sh"], capture_output=True, text=True)
    assert done.stderr.startswith("Pre-train under Slurm") and "SBATCH " not in done.stderr


def test_the_container_gets_every_file_that_it_copies_and_nothing_else():
    sources = {
        word
        for line in re.findall(r"^COPY (.*)", (EXAMPLES / "Dockerfile").read_text(), re.M)
        for word in line.split()[:-1]
    }
    assert all((ROOT / source).exists() for source in sources)
    ignored = (EXAMPLES / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == sources


def test_the_layer_drop_example_learns_from_an_old_configuration(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("layer drop skips blocks. " * 100)
    words = [text, "--steps", "20"]
    status, output, errors = run_module("examples.layer_drop_bert", words)
    assert status == 0, errors[-3000:]
    line = re.compile(r"step \d+: loss ([\d.]+), theta ([\d.]+), (\d+)% ran")
    losses, thetas, shares = zip(
        *(map(float, found) for found in line.findall(output)), strict=True
    )
    assert losses[-1] < losses[0] < math.log(257)
    assert thetas == tuple(round(0.5 + 0.5 * math.exp(-0.05 * (n - 1)), 2) for n in (10, 20))
    # sum over steps and blocks of 1 - (l/8)(1 - theta), and the scatter of 8 x 20 draws
    assert 80 < shares[-1] < 98


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_shell_scripts_have_no_known_mistakes():
    scripts = [*ROOT.glob("*.sh"), *EXAMPLES.glob("*.sh")]
    subprocess.run(["shellcheck", "--severity=warning", *scripts], check=True)
