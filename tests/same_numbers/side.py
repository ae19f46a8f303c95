"""Runs jobs (JSON on stdin) with the code of one checkout; results go to the current folder.

Each command is a fork of this process, which has imported torch and DeepSpeed but started no
thread. It uses the command line only, and nothing else of the tests: it runs with any commit.
"""

import contextlib
import json
import os
import runpy
import shutil
import sys
from multiprocessing import get_context
from pathlib import Path

import deepspeed  # noqa: F401
import torch._inductor.compile_fx

with contextlib.suppress(ImportError):  # where it is gone, each command imports what it held
    import pretrain.train.start  # noqa: F401

OUTPUT, DONE = "output.txt", "done.json"


def main():
    for name, commands in json.load(sys.stdin).items():
        shutil.rmtree(name, ignore_errors=True)
        os.mkdir(name)
        ranks = 2 if name.endswith("-2") else 1
        if all(run(words, ranks, f"{name}/{OUTPUT}") for words in commands):
            Path(name, DONE).write_text(json.dumps(commands))


def run(words, ranks, output):
    """Run one command, on so many ranks; return whether it succeeded."""
    fork = get_context("fork").Process
    processes = [fork(target=become, args=(words, output, rank, ranks)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return not any(process.exitcode for process in processes)


def become(words, output, rank, ranks):
    """Be a rank of `tupelo WORDS`, or of a command below."""
    for stream in (1, 2):
        os.dup2(os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
    print("$ tupelo", *words, flush=True)
    if ranks > 1:
        port = 10_000 + os.getppid() % 20_000  # equal on the ranks, another for another suite
        os.environ |= {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{ranks}"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    if words[0] in OWN_COMMANDS:
        OWN_COMMANDS[words[0]](*words[1:])
    else:
        sys.argv[1:] = words
        runpy.run_module("tupelo", run_name="__main__", alter_sys=True)


def cut(run_folder, target):
    """Copy a finished run as if it had been killed before its last checkpoint."""
    shutil.copytree(run_folder, target)
    Path(target, "result.json").unlink()
    shutil.rmtree(max(Path(target, "checkpoints").iterdir()))


def logits(target, *exports):
    """Save what transformers computes with each CLASS:FOLDER, for a whole and a padded sequence."""
    import transformers
    from safetensors.torch import save_file

    ids_BS, mask_BS, found = torch.arange(64).view(2, 32) + 5, torch.ones(2, 32), {}
    mask_BS[1, 20:] = 0
    for export in exports:
        kind, folder = export.split(":")
        model = getattr(transformers, kind).from_pretrained(folder, trust_remote_code=True).eval()
        with torch.no_grad():
            found[export] = model(ids_BS, attention_mask=mask_BS)[0].clone()
    save_file(found, target)


OWN_COMMANDS = {"cut": cut, "logits": logits}

if __name__ == "__main__":
    main()
