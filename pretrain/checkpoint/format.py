"""The format of a checkpoint: weights and optimizer state in pieces, for any ranks and ZeRO stage.

    checkpoints/step_00010000/
        checkpoint.json            what the parts hold, their sha256, counters; its own sha256
        part_00000.safetensors     fp32 weights and optimizer state that rank 0 updates

A piece is a range of elements of one flattened parameter. A reader asks for the elements that it
needs, so a checkpoint can be read on any number of ranks, at any ZeRO stage. Nothing is pickled: a
checkpoint of unknown origin cannot run code.
"""

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from data_prep.command_line import explained
from data_prep.files.atomic import put_in_place, write_through
from data_prep.shards.manifest import sha256_of
from pretrain.config.errors import ConfigError

CONTENT = "checkpoint.json"
REMOVED = ".removed"
FORMAT = 2
FP32_BYTES = 4
WEIGHT = "weight"

# Format 1 did not record the optimizer's state: it was always AdamW's, of every parameter.
STATE_OF_FORMAT_1 = ("exp_avg", "exp_avg_sq")


class CheckpointError(ConfigError):
    """A checkpoint is incomplete or damaged."""


class Piece(NamedTuple):
    """Elements start .. start + size - 1 of a flattened parameter."""

    start: int
    size: int


class PartRecord(BaseModel):
    """The description of one file in checkpoint.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    size_bytes: int
    pieces: dict[str, Piece]  # by the name of the parameter


class EngineCounters(BaseModel):
    """Counters of the optimizer and of the loss scaler."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    adam_steps: int = 0  # updates, without those that an fp16 overflow skipped
    loss_scaler: dict[str, float] = {}  # empty without one


class Content(BaseModel):
    """The content of checkpoint.json."""

    # The held-out loss of an evaluation may be NaN.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")

    format: int = FORMAT
    run: str | None = None  # identity of the run that wrote it; None: of before it was recorded
    step: int
    world_size: int
    shapes: dict[str, list[int]]  # of the parameters
    optimizer_state: dict[str, list[str]]  # names of the state tensors of each parameter
    parts: dict[str, PartRecord]  # by the name of the file
    engine: EngineCounters
    progress: dict[str, Any]  # counters of the run


class Checkpoint:
    """A complete checkpoint; at first only checkpoint.json is read."""

    def __init__(self, folder: Path) -> None:
        """Read checkpoint.json.

        Raises:
            CheckpointError: it is missing or damaged.
            ConfigError: another version of the code has written it.
        """
        self.folder = folder
        self.content = _read_content(folder)
        # Which files hold which elements of each parameter.
        self._places: dict[str, list[tuple[str, Piece]]] = {n: [] for n in self.content.shapes}
        for file, part in self.content.parts.items():
            for name, piece in part.pieces.items():
                self._places[name].append((file, piece))

    def verify(self) -> None:
        """Read all files and compare them with their sha256.

        Raises:
            CheckpointError: one is missing or differs; it is named.
            ConfigError: one may not be read.
        """
        for name, part in self.content.parts.items():
            try:
                sha256 = sha256_of(self.folder / name)
            except OSError as error:  # it is missing, or lies on a bad sector
                raise _unreadable(self.folder / name, error) from None
            if sha256 != part.sha256:
                raise _damaged(self.folder, f"{name} has another sha256 than when it was written")

    def whole(self, name: str) -> Tensor:
        """Return the weights of one parameter in their shape."""
        shape = self.content.shapes[name]
        return self.read(WEIGHT, name, Piece(0, math.prod(shape))).view(shape)

    def read(self, kind: str, name: str, wanted: Piece) -> Tensor:
        """Return elements of a weight or of a state tensor of it, fp32 [wanted.size].

        `kind` is WEIGHT, or the name of a state tensor.

        Raises:
            CheckpointError: a file is damaged.
        """
        found, missing = torch.empty(wanted.size), wanted.size
        for file, piece in self._places[name]:
            first = max(piece.start, wanted.start)
            end = min(piece.start + piece.size, wanted.start + wanted.size)
            here = slice(first - piece.start, end - piece.start)
            if first >= end:
                continue
            try:
                with safe_open(self.folder / file, framework="pt") as tensors:
                    held = tensors.get_slice(f"{kind}/{name}")[here]
            except (OSError, SafetensorError) as error:
                raise _damaged(self.folder, f"{file}: {error}") from None
            found[first - wanted.start : end - wanted.start] = held
            missing -= end - first
        if missing:
            raise _damaged(self.folder, f"its files do not hold {name} whole")
        return found


def write_part(
    folder: Path, rank: int, tensors: Mapping[str, Tensor], pieces: Mapping[str, Piece]
) -> dict[str, PartRecord]:
    """Write the file of one rank and wait until it is on the disk.

    `tensors` are fp32 [size], on the CPU, by "KIND/NAME"; `pieces` says which elements of each
    parameter they are.

    Raises:
        OSError: it cannot be written.
    """
    file = folder / f"part_{rank:05d}.safetensors"
    save_tensors(tensors, file)
    write_through(file)
    part = PartRecord(sha256=sha256_of(file), size_bytes=file.stat().st_size, pieces=dict(pieces))
    return {file.name: part}


def save_tensors(
    tensors: Mapping[str, Tensor], file: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write safetensors, with the permissions of other new files.

    Raises:
        OSError: they cannot be written.
    """
    try:
        save_file(dict(tensors), file, metadata)
    except SafetensorError as error:
        # It gives the text of the operating system's error only.
        found = re.search(r"\(os error (\d+)\)", str(error))
        words = (int(found[1]), os.strerror(int(found[1]))) if found else (str(error),)
        raise OSError(*words) from None
    file.chmod(file.parent.stat().st_mode & 0o666)  # by safetensors readable by the owner only


def complete(partial: Path, content: Content) -> Path:
    """Write checkpoint.json and rename the folder: from here on the checkpoint exists.

    Raises:
        OSError: it cannot be written.
    """
    described = content.model_dump(mode="json")
    text = json.dumps({"sha256": _digest(described), "content": described}, indent=1)
    (partial / CONTENT).write_text(text + "\n", encoding="utf-8")
    final = partial.with_suffix("")
    put_in_place(partial, final)
    return final


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Read the model's weights, fp32 and whole, from a checkpoint.

    Raises:
        CheckpointError: it is incomplete or damaged.
    """
    checkpoint = Checkpoint(folder)
    checkpoint.verify()
    return {name: checkpoint.whole(name) for name in checkpoint.content.shapes}


def remove(folder: Path) -> None:
    """Remove a checkpoint; it is renamed first, so that a partly removed one is never read."""
    removed = folder.with_suffix(REMOVED)
    remove_tree(removed)  # left by an interrupted removal
    folder.rename(removed)
    remove_tree(removed)


def remove_tree(folder: Path) -> None:
    """Remove a folder if it is there; of a link to another disk the link only."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def _read_content(folder: Path) -> Content:
    try:
        stored = from_json((folder / CONTENT).read_bytes())
    except OSError as error:
        raise _unreadable(folder / CONTENT, error) from None
    except ValueError as error:
        raise _damaged(folder, f"{CONTENT} cannot be read: {error}") from None
    if not isinstance(stored, dict) or _digest(stored.get("content")) != stored.get("sha256"):
        raise _damaged(folder, f"{CONTENT} has another sha256 than when it was written")
    found = stored["content"]
    if found.get("format", FORMAT) not in (1, FORMAT):  # it is not damaged, and not renamed
        raise ConfigError(
            f"{folder} has format {found['format']}, this version of the code reads 1 and "
            f"{FORMAT}; use the version that wrote it"
        )
    if found.get("format") == 1:
        states = dict.fromkeys(found.get("shapes", ()), STATE_OF_FORMAT_1)
        found = {"optimizer_state": states, **found}
    with explained(f"{folder} is damaged ({CONTENT}: ", end=")", kind=CheckpointError):
        content = Content.model_validate(found)
    # Lines of metrics after the step are removed by the name.
    if re.fullmatch(r"step_\d{8}", folder.name) and int(folder.name[5:]) != content.step:
        raise _damaged(folder, f"it is the checkpoint of step {content.step}")
    return content


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _unreadable(file: Path, error: OSError) -> ConfigError:
    """Return the error: what this user may not read is not damaged."""
    if isinstance(error, PermissionError):
        return ConfigError(f"{file} cannot be read: {error.strerror}; ask its owner to allow it")
    return _damaged(file.parent, f"{file.name} cannot be read: {error.strerror}")


def _damaged(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{folder} is damaged ({reason})")


@dataclass(frozen=True)
class Snapshot:
    """The training state that one rank saves, on the host."""

    tensors: dict[str, Tensor]  # "KIND/NAME" -> fp32 [size]
    pieces: dict[str, Piece]  # which elements of a parameter these are
    shapes: dict[str, list[int]]  # of all parameters
    state: Sequence[str]  # names of the optimizer's state tensors of each of them
    counters: EngineCounters
