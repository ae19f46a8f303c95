"""What every program needs before its packages are imported: one-line errors, its own name.

Imports the standard library only, so that a start without the installed packages can say so.
"""

import os
import resource
import shlex
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from pathlib import Path

from data_prep.files.errors import UserError
from data_prep.files.processors import THREADS, cpu_count
from data_prep.files.quoting import on_one_line, plain

# Set by the shell scripts: within them PATH is not that of the user's shell.
COMMAND_VARIABLE = "TUPELO_COMMAND"

OWN_PACKAGES = ("tupelo", "data_prep", "pretrain", "finetune")

# Read by libgomp, which runs torch's threads, when torch is imported: a waiting thread sleeps after
# so many looks, by default 300,000. Alone, a run is as fast with 10,000; beside one busy process it
# was 1.7 times faster where threads sleep at once.
LOOKS_BEFORE_SLEEP = "GOMP_SPINCOUNT"
WAIT_POLICY = "OMP_WAIT_POLICY"  # where the user has set it, it stays

LOAD = Path("/proc/loadavg")  # "0.20 0.18 0.12 2/80 11206": two programs run now, this one included

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
BROKEN_PIPE = 141  # 128 + SIGPIPE


def run_program(main: Callable[[list[str]], int | None]) -> None:
    """Run a program and exit with its status; an error that is the user's to fix is one line.

    Raises:
        SystemExit: always.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each file of shards stays open
    if (count := cpu_count()) < len(os.sched_getaffinity(0)):  # torch does not see the share
        os.environ.setdefault(THREADS, str(count))
    if WAIT_POLICY not in os.environ:
        os.environ.setdefault(LOOKS_BEFORE_SLEEP, "0" if _is_beside_others() else "10000")
    if isinstance(sys.stdout, TextIOWrapper):
        # In a file too line by line: in order with stderr, and now.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except UserError as error:
        sys.exit(f"error: {on_one_line(error)}")
    except MemoryError:
        sys.exit("error: the memory of this machine, or its limit, is used up")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in OWN_PACKAGES:
            raise
        activate = Path(__file__).parents[2] / ".venv" / "bin" / "activate"
        other = f"source {shlex.quote(str(activate))}, or " if activate.is_file() else ""
        sys.exit(
            f"error: the package {package} is not installed for {sys.executable}; {other}install "
            f"it: {shlex.quote(sys.executable)} -m pip install {package}"
        )
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader, such as head, is gone; Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE)
    except OSError as error:  # a name that is too long, a place that may not be read
        if error.filename is None:
            raise
        sys.exit(f"error: {plain(str(error.filename))}: {error.strerror}")
    sys.exit(status)


def _is_beside_others() -> bool:
    for _ in range(3):  # not a program that ends just now
        if not LOAD.is_file() or LOAD.read_text().split()[3].startswith("1/"):
            return False
        time.sleep(0.01)
    return True


def shell_command(*words: str | Path) -> str:
    """Return the line that runs `tupelo WORDS` in the user's shell.

    This is `tupelo` where PATH leads to that of this environment, else the path of the program,
    else `PYTHON -m tupelo`.
    """
    program = os.environ.get(COMMAND_VARIABLE)
    if program is None:
        path = Path(sys.executable).with_name("tupelo")
        program = f"{shlex.quote(sys.executable)} -m tupelo"
        if path.is_file():
            program = "tupelo" if shutil.which("tupelo") == str(path) else shlex.quote(str(path))
    return " ".join((program, *(shlex.quote(str(word)) for word in words)))


def own_packages_first(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a Python program of ours, with these variables.

    `python -m` puts the current folder first on sys.path: a random.py of the user, or a
    pretrain.py, would be imported in place of the real one.
    """
    root = str(Path(__file__).parents[2])
    safe = {**variables, "PYTHONSAFEPATH": "1"}
    # Installed packages are found anyway; before the standard library they would shadow it.
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        # An empty entry would be the current folder.
        others = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
        safe["PYTHONPATH"] = os.pathsep.join([root, *others])
    return safe


def curves_command(folder: str | Path) -> str:
    """Return the line that starts the TensorBoard of this environment."""
    program = Path(sys.executable).with_name("tensorboard")
    return shlex.join((str(program), "--logdir", str(folder)))
