"""A tupelo whose interpreter and launcher are stubs that note how they were started."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pretrain.__main__ import main
from pretrain.config.errors import ConfigError
from pretrain.distributed import hardware
from tests.forked_command import PYTHONPATH

HIDDEN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES")
PYTHON = sys.executable  # tests may put a stub in its place

# Starts `pretrain WORDS` in a real interpreter, for which the stubs are its environment's programs.
START = """
import sys
sys.executable = sys.argv.pop(1)
from data_prep.files.program import run_program
from pretrain.__main__ import main
run_program(main)
"""

# Stands for `python -m pretrain` and for deepspeed.
STUB = r"""#!/usr/bin/env bash
call="${0##*/} $*"
[[ $call != *' --measure '* ]] || call=${call/ train / measure }
echo "$call" >>"$CALLS"
[[ -z ${CUDA_VISIBLE_DEVICES+x} ]] || echo "$CUDA_VISIBLE_DEVICES" >>"$CALLS.visible"
[[ -z ${STUB_FAILS:-} || $call != $STUB_FAILS ]] || exit 3
if [[ -n ${STUB_WAITS:-} && " $call " == *" $STUB_WAITS "* ]]; then
  hear() { echo "heard $1" >>"$CALLS"; exit "${STUB_STATUS:-0}"; }
  for name in INT TERM USR1; do trap "hear $name" "$name"; done
  echo waits >>"$CALLS.waiting"; while :; do sleep 0.02; done
fi
if [[ $call == *' train '* ]]; then
  # Until so many trainings have begun, and until this one is released.
  while (($(grep -c ' train ' "$CALLS") < ${STUB_TOGETHER:-0})); do sleep 0.02; done
  while [[ -n ${STUB_HELD:-} && $call == $STUB_HELD && ! -e $CALLS.release ]]; do sleep 0.02; done
fi
case $call in
  *' train '*--run-folder*)
    folder=${call##*--run-folder } folder=${folder%% *}
    mkdir -p "$folder"; echo '{}' >"$folder/run.json"
    for pair in ${STUB_LOSSES:-}; do  # PART OF THE CALL=LOSS
      [[ $call != *"${pair%%=*}"* ]] || loss=${pair#*=}
    done
    result='{"step": 7, "parameters": 9, "final_learning_rate": 0.0, "peak_learning_rate": 1.0,
      "held_out_loss": '${loss:-5.5}'}'
    if [[ -n ${STUB_DIVERGES:-} && $call == $STUB_DIVERGES ]]; then
      mkdir -p "$folder/trouble"
      echo '{"action": "stop"}' >>"$folder/trouble/decisions.jsonl"; exit 1
    fi
    [[ -n ${STUB_NO_RESULT:-} ]] || echo "$result" >"$folder/result.json" ;;
  *' measure '*)
    for pair in ${STUB_SPEEDS:-/=1}; do  # PART OF THE CALL=SECONDS
      [[ $call != *"${pair%%=*}"* ]] || echo "seconds per step  ${pair#*=}"
    done ;;
esac
"""

# Stands for a rank. Bash cannot trap a signal that was ignored when it started.
RANK = f"""#!{sys.executable}
import os, signal, subprocess, time
from pathlib import Path

def note(text):
    with open(os.environ["CALLS"], "a") as file:
        file.write(text + "\\n")

def hear(number, frame):
    time.sleep(0.2)
    note("heard " + signal.Signals(number).name + " alone" * (compiler.poll() is not None))
    compiler.kill()
    os._exit(0)  # an interpreter that ends dies of the next signal

unblock = lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ())
compiler = subprocess.Popen(["sleep", "60"], preexec_fn=unblock)  # as torch starts one
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, hear)
unblock()
note("ready")
if Path(os.environ["CALLS"]).read_text().count("ready") == 2:
    Path(os.environ["CALLS"] + ".waiting").write_text("waits")
while True:
    signal.pause()
"""


# Stands for the lower process of the launcher.
LAUNCHER = f"""#!{sys.executable}
import os, signal, subprocess, sys, time
from pathlib import Path
if SECONDS:
    Path(os.environ["CALLS"] + ".waiting").write_text("waits")
    time.sleep(SECONDS)
ranks = [subprocess.Popen([RANK, *sys.argv[1:]]) for _ in range(2)]
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
sys.exit(max(rank.wait() for rank in ranks))
"""


class Stubs:
    """A folder with a text alone, and the programs that tupelo starts."""

    def __init__(self, folder):
        self.folder, self.bin, self.log = folder / "here", folder / "bin", folder / "calls"
        self.own = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": PYTHONPATH,
            "CALLS": str(self.log),
        }
        self.bin.mkdir()
        self.folder.mkdir()
        (self.folder / "text.txt").write_text("One.\n")
        self.program("python", STUB)
        self.program("deepspeed", STUB)
        self.gpus(0)

    def program(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def gpus(self, count):
        lines = "".join(f"echo '{n}, GPU-{n}a{n}, NVIDIA H200, 580.1'\n" for n in range(count))
        self.program("nvidia-smi", f"#!/usr/bin/env bash\n{lines}")

    def launcher_with_two_ranks(self, *, after_seconds=0):
        """Make deepspeed what it is: two processes, one below the other, and the ranks."""
        rank, launch = self.bin / "rank", self.bin / "deepspeed.launcher.launch"
        self.program("rank", RANK)
        text = LAUNCHER.replace("RANK", repr(str(rank))).replace("SECONDS", str(after_seconds))
        self.program(launch.name, text)
        self.program("deepspeed", f'#!/usr/bin/env bash\n"{launch}" "$@"; exit $?\n')

    def start(self, *words, **environment):
        kept = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        return subprocess.Popen(
            [PYTHON, "-c", START, str(self.bin / "python"), *map(str, words)],
            cwd=self.folder,
            env=kept | self.own | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # Tests in the background ignore SIGINT (2), under nohup SIGHUP (1); bash keeps that.
            preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in (1, 2)],
        )

    def run(self, *words, **environment):
        """Run the command in this process; return exit status, stdout and stderr."""
        output, errors, status = io.StringIO(), io.StringIO(), 0
        with (
            pytest.MonkeyPatch.context() as patched,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            patched.chdir(self.folder)
            patched.setattr(hardware, "MEASURED_SHAPES", {"cpu": (8, 8, 8)})
            patched.setattr(sys, "executable", str(self.bin / "python"))
            for name in HIDDEN:
                patched.delenv(name, raising=False)
            for name, value in (self.own | environment).items():
                patched.setenv(name, value)
            try:
                main(list(map(str, words)))
            except SystemExit as ended:
                status = ended.code or 0
            except ConfigError as error:
                print(f"error: {error}", file=sys.stderr)
                status = 1
        return status, output.getvalue(), errors.getvalue()

    def start_waiting(self, *words, count=1, **environment):
        """Start, and return the process when so many children of it wait for a signal."""
        process = self.start(*words, **environment)
        waiting, deadline = Path(f"{self.log}.waiting"), time.monotonic() + 60
        while not waiting.exists() or len(waiting.read_text().splitlines()) < count:
            assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
            time.sleep(0.02)
        return process

    def calls(self, *parts):
        """Return the calls so far that contain these parts."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if all(part in line for part in parts)]

    def visible(self):
        """Return CUDA_VISIBLE_DEVICES of the calls that had it."""
        file = Path(f"{self.log}.visible")
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def stubs(tmp_path):
    return Stubs(tmp_path)
