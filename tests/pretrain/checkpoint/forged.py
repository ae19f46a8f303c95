"""Checkpoints whose description is changed, and its checksum with it."""

import json

from pretrain.checkpoint.format import CONTENT, _digest


def reseal(folder, change):
    """Change checkpoint.json, and its checksum with it."""
    stored = json.loads((folder / CONTENT).read_text())
    change(stored["content"])
    stored["sha256"] = _digest(stored["content"])
    (folder / CONTENT).write_text(json.dumps(stored))
