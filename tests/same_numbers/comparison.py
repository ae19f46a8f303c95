"""Compares the results of a job bit for bit, except for what comes from a clock."""

import json

import h5py
import torch
from safetensors.torch import load_file

FILES = (
    *("metrics.jsonl", "evals.jsonl", "step_*/*.safetensors", "logits.safetensors", "*.h5"),
    *("tokenizer.json", "manifest.json", "seed_*/result.json", "predictions*"),
)
# Of clocks, and what is no number.
IGNORED = {
    *("training_seconds", "tokens_per_second", "samples_per_second", "model_flops_utilisation"),
    *("processor_wait_share", "time_shares", "peak_memory_bytes", "seconds"),
    *("source", "settings", "reason"),
}


def differences(old, new):
    """Return a line for each value of a folder of results that is not the same in another one."""
    found = []
    for file in sorted({file for pattern in FILES for file in old.rglob(pattern)}):
        name = file.relative_to(old)
        today = dict(values(new / name)) if (new / name).is_file() else {}
        for key, value in values(file):
            if complaint := difference(value, today.get(key, "nothing")):
                found.append(f"{name}, {key}: {complaint}")
    return found


def values(file):
    """Yield what a file holds: names, and tensors, numbers or lines of text."""
    if file.suffix == ".safetensors":
        yield from load_file(file).items()
    elif file.suffix == ".h5":
        with h5py.File(file) as content:
            yield from [(name, torch.from_numpy(content[name][()])) for name in content]
    elif file.suffix == ".jsonl":
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        yield "steps", [line["step"] for line in lines]  # none comes twice, none is added
        for line in lines:
            yield from leaves(line, f"step {line['step']}")
    elif file.suffix == ".json":
        yield from leaves(json.loads(file.read_text()), "")
    else:
        yield from ((f"line {n}", line) for n, line in enumerate(file.read_text().splitlines(), 1))


def leaves(value, path):
    """Yield path and value of each number and text of a JSON value."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in IGNORED:
                yield from leaves(part, f"{path} {key}".strip())
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
