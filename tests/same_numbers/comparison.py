"""Compares what runs leave bit for bit, except for what comes from a clock."""

import json
import re

import h5py
import torch
from safetensors.torch import load_file

CLOCK = frozenset(
    (
        *("training_seconds", "tokens_per_second", "samples_per_second", "time_shares"),
        *("model_flops_utilisation", "processor_wait_share", "peak_memory_bytes"),
        "payload_bytes_per_step",  # of old versions
    )
)


def differences(old, new, files, ignored):
    """Return a line for each value in files of a folder that has other bits in another folder.

    `files` are patterns of names at any depth, the most telling first; in JSON, keys that are
    `ignored` do not count.
    """
    found = []
    for file in dict.fromkeys(file for name in files for file in sorted(old.rglob(name))):
        name = file.relative_to(old)
        # A trial of fine-tuning was in MODEL/lr_RATE/seed_N.
        today = re.sub(r"/lr_([^/]+)/seed_(\d+)/", r"-\1-seed\2/", str(name))
        before, now = (dict(values(file, ignored)) for file in (old / name, new / today))
        for key in before | now:
            if text := difference(before.get(key, "nothing"), now.get(key, "nothing")):
                found.append(f"{name}, {key}: {text}")
    return found


def values(file, ignored):
    """Yield what a file holds, if it is there: names, and tensors, numbers or lines of text."""
    if not file.exists():
        return
    if file.suffix == ".safetensors":
        yield from load_file(file).items()
    elif file.suffix == ".h5":
        with h5py.File(file) as content:
            yield from [(name, torch.from_numpy(content[name][()])) for name in content]
    elif file.suffix == ".json":
        yield from leaves(json.loads(file.read_text()), "", ignored)
    elif file.suffix == ".jsonl":
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        lines = [line for line in lines if line["step"]]  # at 0 the newer code alone evaluates
        yield "steps", [line["step"] for line in lines]
        for line in lines:
            yield from leaves(line, f"step {line['step']}", ignored)
    else:
        yield from enumerate(file.read_text().splitlines(), 1)


def leaves(value, path, ignored):
    """Yield path and value of each number and text of a JSON value."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in ignored:
                yield from leaves(part, f"{path} {key}".strip(), ignored)
    else:
        yield path, value


def difference(old, new):
    """Say how two values differ in a bit, of tensors the first element; "" if they do not."""
    if not (isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor)):
        return "" if repr(old) == repr(new) else f"{old!r:.80} became {new!r:.80}"
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return f"{old.dtype} {[*old.shape]} became {new.dtype} {[*new.shape]}"
    bits = [tensor.contiguous().view(-1, 1).view(torch.uint8) for tensor in (old, new)]
    places = (bits[0] != bits[1]).any(dim=1).nonzero().view(-1)
    if not len(places):
        return ""
    first, last = (tensor.view(-1)[places[0]].item() for tensor in (old, new))
    return f"element {places[0]}: {first!r} became {last!r} ({len(places)} of {old.numel()} differ)"
