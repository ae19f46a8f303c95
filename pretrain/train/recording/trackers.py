"""Experiment trackers: Weights & Biases and MLflow, which are optional packages."""

import importlib
import logging
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from pretrain.config.errors import ConfigError
from pretrain.config.settings import LOGGERS, RunSettings, flat


class Tracker(Protocol):
    """A run of a tracker, which is created or continued by the constructor."""

    id: str  # by which the tracker knows the run

    def __init__(self, folder: Path, settings: RunSettings, known_id: str | None) -> None:
        """Create the run, or continue that of an earlier launch.

        Args:
            folder: of the run.
            settings: of the run.
            known_id: of an earlier launch.
        """

    def send(self, step: int, scalars: dict[str, float]) -> None:
        """Add the points of a step."""

    def finish(self, *, complete: bool) -> None:
        """End this launch; `complete`: the run has reached its last step."""


class WandbRun:
    """A run of Weights & Biases; its own environment variables, such as WANDB_MODE, apply."""

    def __init__(self, folder: Path, settings: RunSettings, known_id: str | None) -> None:
        wandb: Any = importlib.import_module("wandb")
        self.id = known_id or uuid.uuid4().hex[:12]
        self._run = wandb.init(
            project=settings.log_project,
            name=folder.resolve().name,
            id=self.id,
            resume="allow",
            dir=str(folder),
            settings=wandb.Settings(console="off"),
        )
        self._run.config.update(settings.model_dump(mode="json"), allow_val_change=True)
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        # W&B drops rows whose number falls, as the step does in a rewind: they are counted on.
        self._row, self._step = self._run.step - 1, -1

    def send(self, step: int, scalars: dict[str, float]) -> None:
        """Add the points of a step."""
        if step != self._step:
            self._row, self._step = max(step, self._row + 1), step
        self._run.log({"step": step, **scalars}, step=self._row)

    def finish(self, *, complete: bool) -> None:
        """End this launch."""
        self._run.finish(exit_code=0 if complete else 1)


class MlflowRun:
    """A run of MLflow, in MLFLOW_TRACKING_URI or else in mlflow.db of the run folder."""

    def __init__(self, folder: Path, settings: RunSettings, known_id: str | None) -> None:
        self._mlflow: Any = importlib.import_module("mlflow")
        for library in ("mlflow", "alembic"):  # they report the tables that they create
            logging.getLogger(library).setLevel(logging.WARNING)
        if not self._mlflow.is_tracking_uri_set():
            self._mlflow.set_tracking_uri(f"sqlite:///{folder.resolve() / 'mlflow.db'}")
        if settings.log_project is not None and known_id is None:
            self._mlflow.set_experiment(settings.log_project)
        run = self._mlflow.start_run(run_id=known_id, run_name=folder.resolve().name)
        self.id = run.info.run_id
        if known_id is None:  # MLflow refuses to change a parameter
            self._mlflow.log_params(flat(settings.model_dump(mode="json")))

    def send(self, step: int, scalars: dict[str, float]) -> None:
        """Add the points of a step."""
        self._mlflow.log_metrics(scalars, step=step)

    def finish(self, *, complete: bool) -> None:
        """End this launch."""
        self._mlflow.end_run("FINISHED" if complete else "KILLED")


TRACKERS: dict[str, type[Tracker]] = {"wandb": WandbRun, "mlflow": MlflowRun}


def refuse_missing_loggers(settings: RunSettings) -> None:
    """Refuse a logger whose package is not installed.

    Raises:
        ConfigError: it is named, with the command that installs it.
    """
    for name in settings.loggers:
        found = find_spec(LOGGERS[name])
        if found is None or found.origin is None:  # a folder of that name, such as wandb writes
            raise ConfigError(
                f"loggers={','.join(settings.loggers)}: {name} is not installed; install it with "
                f"python -m pip install {LOGGERS[name]}, or leave it out of loggers"
            )
