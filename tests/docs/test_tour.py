"""The commands of README and docs run: examples/tour.sh has each of them, in small."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from multiprocessing.connection import Listener

import pytest

from tests.forked_command import ROOT, run_module

TOUR = ROOT / "examples" / "tour.sh"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?:^|`)(tupelo [^`#\n]*)", re.M)
BLOCK = re.compile(r"^```\n(.*?)^```", re.M | re.S)

# Commands that the tour leaves out, and who runs them.
ELSEWHERE = {
    "import": "tests/pretrain/convert/external/test_import.py: needs a BERT of transformers",
    "data import": "tests/data_prep/commands/test_import_shards.py: needs shards of NVIDIA's BERT",
}


def command_of(line):
    """Return "data build" for "tupelo data build --to x"."""
    words = line.split()[1:]
    return " ".join(words[: 2 if words[0] in ("data", "finetune") else 1])


def as_commands(text):
    """Return a page with long lines joined, and the scripts as the commands that they start."""
    text = text.replace("\\\n", " ").replace("./run_finetune.sh", "tupelo finetune run")
    text = text.replace("./run_pretrain.sh -", "tupelo sweep -").replace(" --smoke", " smoke")
    return text.replace("./run_pretrain.sh", "tupelo train")


def test_the_tour_has_every_command_of_the_pages_or_a_test_has():
    tour = TOUR.read_text().replace("\\\n", " ").splitlines()
    commands = [line.strip().removeprefix("run ") for line in tour if "run tupelo" in line]
    shown = {command_of(line) for line in commands} | ELSEWHERE.keys()
    documented = {
        command_of(line)
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
        for line in COMMAND.findall(block)
    }
    assert len(documented) > 12
    assert documented <= shown


def test_every_option_in_a_documented_command_exists():
    lines = [line for page in PAGES for line in COMMAND.findall(as_commands(page.read_text()))]
    shown = {}
    for line in lines:
        options = set(re.findall(r"(?<=\s)--[a-z_.-]+", line))
        if options and line.split()[1].islower():
            shown.setdefault(command_of(line), set()).update(options)
    assert len(shown) > 8
    for command, options in shown.items():
        _, help_of, _ = run_module("tupelo", [*command.split(), "--help"])
        assert options <= set(re.findall(r"--[\w.-]+", help_of)), command


CLIENT = """#!{python} -S
import os, sys
from multiprocessing.connection import Client

with Client({address!r}) as server:
    server.send((sys.argv[1:], os.getcwd(), dict(os.environ)))
    status, output, errors = server.recv()
sys.stdout.write(output)
sys.stderr.write(errors)
sys.exit(status)
"""


@pytest.fixture
def program(tmp_path):
    """A `tupelo` whose commands are forked; tests/tupelo/test_installed.py has the true one."""

    def serve():
        with contextlib.suppress(OSError):
            while True:
                with listener.accept() as client:
                    words, folder, variables = client.recv()
                    client.send(run_module("tupelo", words, folder=folder, **variables))

    with Listener() as listener:
        program = tmp_path / "tupelo"
        program.write_text(CLIENT.format(python=sys.executable, address=listener.address))
        program.chmod(0o755)
        threading.Thread(target=serve, daemon=True).start()
        yield str(program)


@pytest.mark.slow("every command")
def test_the_commands_of_the_tour_and_a_hint_run(program, tmp_path):
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    named = {"TUPELO": program, "TUPELO_COMMAND": program, "PATH": os.defpath}
    how = {"env": kept | named, "stdin": subprocess.DEVNULL, "text": True}
    done = subprocess.run(
        [TOUR, tmp_path / "new"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "All commands ran" in done.stdout
    has_scripts = (ROOT / ".venv/bin/tupelo").exists()
    assert ("./run_finetune.sh" in done.stdout) == has_scripts
    hint = re.search(rf"again: ({program} sweep .*)", done.stdout)[1]
    subprocess.run(["/bin/sh", "-c", hint], cwd=tmp_path / "new", check=True, **how)
