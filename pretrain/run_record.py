"""The run folder: everything needed to know what a run was, to resume it, and to compare it.

run.json          the settings            ds_config.json   as DeepSpeed got it
tokenizer.json    of the shards           manifest.json    of the shards
launches.jsonl    one line per start
metrics.jsonl     training                evals.jsonl      held-out loss
events.*          TensorBoard             checkpoints/     complete or absent
result.json       written last: a folder without it holds an unfinished run
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from data_prep.durable import write_through
from data_prep.manifest import TOKENIZER_FILE, write_manifest
from data_prep.shards import ShardSet
from pretrain.config import ConfigError, RunSettings, as_json, flat

STATE_FILE = "training_state.json"
CHECKPOINTS = "checkpoints"

# Groups of settings that do not change what a step computes.
FREE_TO_CHANGE = ("trouble.",)


class RunRecord:
    """The run folder of one launch. Only the first rank may call its methods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: SummaryWriter | None = None

    def checkpoint_to_resume(
        self,
        settings: RunSettings,
        ds_config: dict[str, Any],
        launch: dict[str, Any],
        *,
        resume: bool,
    ) -> Path | None:
        """Check that the run may start here; write nothing.

        Args:
            settings: of the run.
            ds_config: as DeepSpeed gets it.
            launch: number of ranks and identity of the data, as in launches.jsonl.
            resume: whether the folder must hold this run, or no run.

        Returns:
            The newest complete checkpoint, None if the run starts from the beginning.

        Raises:
            ConfigError: the folder holds a run and `resume` is False, or holds none and it is
                True, or the resumed run has other settings (they are named), ranks or data.
        """
        exists = (self.folder / "run.json").exists()
        if resume and not exists:
            raise ConfigError(f"{self.folder} holds no run to resume; start it without --resume")
        if exists and not resume:
            raise ConfigError(
                f"{self.folder} already holds a run; continue it with --resume, or choose another "
                "folder with --run-folder"
            )
        if not resume:
            return None
        # A run that is older than a setting was started with what is its default today.
        _refuse_changes(self.folder / "run.json", as_json(settings), default=as_json(RunSettings()))
        self._refuse_other_launch(launch)
        _refuse_changes(self.folder / "ds_config.json", json.dumps(ds_config))
        return next(reversed(checkpoints_of(self.folder)), None)

    def create(self, settings: RunSettings, ds_config: dict[str, Any], shards: ShardSet) -> None:
        """Write what describes the run.

        Raises:
            ConfigError: the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(shards.tokenizer_path, self.folder / TOKENIZER_FILE)
            write_manifest(self.folder, shards.manifest)
            (self.folder / "ds_config.json").write_text(json.dumps(ds_config, indent=1) + "\n")
            (self.folder / "run.json").write_text(as_json(settings))
        except OSError as error:
            raise ConfigError(
                f"cannot write the run folder {self.folder}: {error.strerror}; choose another one "
                "with --run-folder"
            ) from None

    def begin(self, step: int, launch: dict[str, Any]) -> None:
        """Note a launch that starts at `step`; forget what an interrupted one wrote after it."""
        self._append("launches.jsonl", {"at": time.strftime("%FT%T%z"), **launch, **environment()})
        self.go_back_to(step)

    def go_back_to(self, step: int) -> None:
        """Forget the lines that were written after `step`, and go on from there."""
        self.close()
        for name in ("metrics.jsonl", "evals.jsonl"):
            _truncate_after(self.folder / name, step)
        self._writer = SummaryWriter(str(self.folder), purge_step=step + 1 if step else None)

    def log(self, metrics: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl and the same numbers to TensorBoard."""
        self._append("metrics.jsonl", metrics)
        self._to_tensorboard("train", metrics)

    def log_evaluation(self, evaluation: dict[str, Any]) -> None:
        """Append a line to evals.jsonl and the same numbers to TensorBoard."""
        self._append("evals.jsonl", evaluation)
        self._to_tensorboard("held_out", evaluation)

    def checkpoint_folder(self, step: int) -> Path:
        """Return where the checkpoint after `step` optimizer steps will be."""
        return self.folder / CHECKPOINTS / f"step_{step:08d}"

    def partial_folder(self, step: int) -> Path:
        """Return an empty folder in which a checkpoint is written before it counts."""
        partial = self.checkpoint_folder(step).with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        return partial

    def complete_checkpoint(self, step: int, state: dict[str, Any], keep_last: int | None) -> None:
        """Make the partial folder the checkpoint of `step`, and remove the oldest ones."""
        final = self.checkpoint_folder(step)
        partial = final.with_suffix(".partial")
        (partial / STATE_FILE).write_text(json.dumps(state) + "\n")
        for file in filter(Path.is_file, partial.rglob("*")):
            _secure(file)
        os.replace(partial, final)
        if keep_last is not None:
            for old in checkpoints_of(self.folder)[:-keep_last]:
                shutil.rmtree(old)

    def finish(self, result: dict[str, Any]) -> None:
        """Write result.json: the run is complete."""
        partial = self.folder / "result.json.partial"
        partial.write_text(json.dumps(result, indent=1) + "\n")
        os.replace(partial, self.folder / "result.json")
        self.close()

    def close(self) -> None:
        """Flush TensorBoard."""
        if self._writer is not None:
            self._writer.close()

    def _refuse_other_launch(self, launch: dict[str, Any]) -> None:
        launches = self.folder / "launches.jsonl"
        if not launches.exists():
            return
        before = json.loads(launches.read_text().splitlines()[0])
        if before["world_size"] != launch["world_size"]:
            raise ConfigError(
                f"{self.folder} was started on {before['world_size']} ranks and cannot be resumed "
                f"on {launch['world_size']}; start as many as before"
            )
        if any(before[name] != launch[name] for name in ("training_data", "held_out")):
            raise ConfigError(
                f"cannot resume {self.folder}: the shards are not those that it was started on; "
                "bring them back, or start a new run"
            )

    def _append(self, name: str, record: dict[str, Any]) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def _to_tensorboard(self, prefix: str, values: dict[str, Any]) -> None:
        assert self._writer is not None
        for name, value in values.items():
            if isinstance(value, list):
                for index, part in enumerate(value):
                    self._writer.add_scalar(f"{name}/layer_{index + 1:02d}", part, values["step"])
            elif isinstance(value, dict):
                for key, part in value.items():
                    self._writer.add_scalar(f"{name}/{key}", part, values["step"])
            elif value is not None and name != "step":
                self._writer.add_scalar(f"{prefix}/{name}", value, values["step"])


def newest_checkpoint(folder: Path) -> Path:
    """Return the newest complete checkpoint of a run folder.

    Raises:
        ConfigError: the folder holds no run, or a run without a checkpoint.
    """
    if not (folder / "run.json").is_file():
        raise ConfigError(f"{folder} is not a run folder: it has no run.json")
    found = checkpoints_of(folder)
    if not found:
        raise ConfigError(f"{folder} has no checkpoint yet; let the run reach its first one")
    return found[-1]


def checkpoints_of(folder: Path) -> list[Path]:
    """Return the complete checkpoints of a run folder, oldest first."""
    return sorted((folder / CHECKPOINTS).glob("step_????????"))


def environment() -> dict[str, Any]:
    """Return what besides the settings can change a result or a timing."""
    packages = ("torch", "deepspeed", "numpy", "tokenizers")
    return {
        "command": sys.argv,
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in packages}},
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else _processor(),
    }


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parents[1]), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown: git is not installed"
    return found.stdout.strip() or "unknown: not a git checkout"


def _processor() -> str:
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text().splitlines() if cpu_info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} x {len(names)}" if names else platform.processor() or "CPU"


def _secure(file: Path) -> None:
    """Make sure that a file is on the disk, and is not empty, before older ones are removed."""
    write_through(file)
    if file.stat().st_size == 0:
        raise OSError(f"{file} is empty: the checkpoint was not written")


def _refuse_changes(file: Path, text: str, *, default: str = "{}") -> None:
    defaults, stored, now = (
        flat(json.loads(content)) for content in (default, file.read_text(), text)
    )
    before = defaults | stored
    changed = sorted(
        name
        for name in before | now
        if before.get(name) != now.get(name) and not name.startswith(FREE_TO_CHANGE)
    )
    if changed:
        described = ", ".join(f"{n} (was {before.get(n)}, is {now.get(n)})" for n in changed)
        raise ConfigError(f"cannot resume {file.parent} with other settings: {described}")


def _truncate_after(file: Path, step: int) -> None:
    if not file.exists():
        return
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        # The last line can be cut short: the process died while writing it.
        if not line.endswith("\n") or json.loads(line)["step"] > step:
            break
        kept.append(line)
    partial = file.with_suffix(".partial")
    partial.write_text("".join(kept), encoding="utf-8")
    os.replace(partial, file)
