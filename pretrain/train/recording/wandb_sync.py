"""Weights & Biases shows the TensorBoard files of a run; no error of it ends the run."""

import hashlib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pretrain.checkpoint.folders import identity_of
from pretrain.config.settings import RunSettings


class WandbSync:
    """A run of W&B that reads what TensorBoard gets; its variables apply, such as WANDB_PROJECT."""

    def __init__(self, folder: Path, settings: RunSettings) -> None:
        """Begin it, or continue that of earlier launches, before TensorBoard has a writer."""
        name = folder.resolve().name
        identity, _ = identity_of(folder)
        self._run = _or_warning(
            lambda: importlib.import_module("wandb").init(
                name=name,
                id=hashlib.sha256(f"{name}{identity}".encode()).hexdigest()[:12],
                resume="allow",
                sync_tensorboard=True,
                dir=str(folder),
                config=settings.model_dump(mode="json"),
                allow_val_change=True,
            )
        )

    def close(self) -> None:
        """Send the last points."""
        if self._run is not None:
            _or_warning(self._run.finish)


def _or_warning(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:  # of the library, or of the network: no list of them is complete
        print(f"warning: wandb: {error or type(error)}; training goes on", file=sys.stderr)
        return None
