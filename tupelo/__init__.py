"""Tupelo: pre-train BERT-style encoders, and measure how much sooner a change converges.

The names in `__all__` are the Python API, see docs/MODELS.md. Each is imported at its first use:
`import tupelo` loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pretrain.model.attached_positions import attach_positions as attach_positions
    from pretrain.model.position_encoding import PositionEncoding as PositionEncoding
    from pretrain.model.positions import POSITION_ENCODINGS as POSITION_ENCODINGS
    from tupelo.layer_drop import LayerDrop as LayerDrop
    from tupelo.loaded_encoder import load as load
    from tupelo.plain_training import build as build
    from tupelo.plain_training import held_out_loss as held_out_loss
    from tupelo.plain_training import settings as settings
    from tupelo.plain_training import step_plans as step_plans
    from tupelo.plain_training import training_batches as training_batches

__version__ = "0.2.0"

MODULES = {
    "LayerDrop": "tupelo.layer_drop",
    "POSITION_ENCODINGS": "pretrain.model.positions",
    "PositionEncoding": "pretrain.model.position_encoding",
    "attach_positions": "pretrain.model.attached_positions",
    "build": "tupelo.plain_training",
    "held_out_loss": "tupelo.plain_training",
    "load": "tupelo.loaded_encoder",
    "settings": "tupelo.plain_training",
    "step_plans": "tupelo.plain_training",
    "training_batches": "tupelo.plain_training",
}
__all__ = [*MODULES]


def __getattr__(name: str) -> Any:
    """Import a name of the API (PEP 562)."""
    if name not in MODULES:
        raise AttributeError(f"module 'tupelo' has no attribute {name!r}")
    return vars(import_module(MODULES[name]))[name]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
