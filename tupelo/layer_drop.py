"""Progressive layer drop for models that are not ours, under any training loop.

DeepSpeed had it until 0.19.7, as `progressive_layer_drop` in its JSON (Zhang & He, NeurIPS 2020);
the schedule and the coins are those of pretrain/schedules/layer_drop.py.

A block x -> f(x) that is skipped returns x: neither forward nor backward pass are computed. A kept
one returns x + (f(x) - x) / p, p its keep probability, so that the expected output is f(x), given
x. bing_bert, and the blocks of this package, divide each branch by p inside the block instead:
x + a/p + F(x + a/p)/p for attention a and feed-forward F, against x + (a + F(x + a))/p here. Both
are f(x) at p = 1, and equal if F does not depend on a.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from pretrain.config.ds_config import check_types, lift_layer_drop
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.settings import LayerDropSettings, explain
from pretrain.engine.stale_gradients import StaleGradients
from pretrain.schedules.layer_drop import branch_scales, check_layer_drop, theta_at
from tupelo.encoder_blocks import blocks_of

TIMELESS = ("none", "constant")  # schedules in which theta depends on no step


class LayerDrop:
    """Skips blocks of a model while it trains; in evaluation mode every block runs.

    The names of the weights stay as they are. Coins are functions of (seed, finished steps,
    micro-batch): equal on all ranks, and in a resumed run those of the straight one. A deep copy
    of the model runs every block.

    Attributes:
        theta: keep ratio of the last block in the current step.
        branch_scales: a number per block: 0 skips it, others are its 1/p.
        settings: schedule, theta_bar, gamma, rescale and compat.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        total_steps: int | None = None,
        schedule: str = "progressive",
        seed: int = 0,
        blocks: Sequence[nn.Module] | None = None,
        **settings: Any,
    ) -> None:
        """Put the coins between the model and its blocks.

        Args:
            model: such as an encoder of transformers, before or after `deepspeed.initialize`. A
                block takes hidden states first, and returns them, or a tuple that begins with them.
            total_steps: optimizer steps of the run, from which gamma = 100 / total_steps follows.
            schedule: of theta, the keep ratio of the last block, as `layer_drop.schedule`.
            seed: of the coins.
            blocks: to be dropped, such as model.encoder.layer; default: found, see `blocks_of`.
            settings: theta_bar (0.5), gamma, rescale (False: kept blocks return f(x)), draw_per
                ("micro_batch", or "step") and compat ("deepspeed": bing_bert's keep probabilities
                and scales), as the settings `layer_drop.*` of a recipe.

        Raises:
            ConfigError: there are no such settings, or the blocks are not found or dropped already.
        """
        self.settings = _checked({"schedule": schedule, **settings})
        if total_steps is None and self.settings.gamma is None and schedule not in TIMELESS:
            raise ConfigError(f"schedule={schedule!r} needs total_steps, or gamma")
        if (total_steps is not None and total_steps < 1) or seed < 0:
            raise ConfigError(f"total_steps={total_steps} and seed={seed}: give 1 and 0, or more")
        self.blocks = blocks_of(model, blocks)
        if any(isinstance(vars(block).get("forward"), _DroppedForward) for block in self.blocks):
            raise ConfigError(
                f"blocks of the {type(model).__name__} are dropped already; call remove() of the "
                "first LayerDrop"
            )
        self._total_steps, self._seed = total_steps or 1, seed
        self.theta, self.branch_scales = 1.0, list[float]()
        self._structures: dict[tuple[Any, ...], int | None] = {}
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        for number, block in enumerate(self.blocks):
            # Beside the method of the class; a submodule would change the names of the weights.
            vars(block)["forward"] = _DroppedForward(self, number, block)

    @classmethod
    def from_ds_config(
        cls, model: nn.Module, config: str | Path | Mapping[str, Any], **arguments: Any
    ) -> tuple["LayerDrop", dict[str, Any]]:
        """Read an old DeepSpeed JSON, whose block `progressive_layer_drop` DeepSpeed now refuses.

        Args:
            model: as of `LayerDrop`.
            config: a file or its content.
            arguments: of `LayerDrop`, besides schedule, theta_bar and gamma; with
                compat="deepspeed" keep probabilities and scales are bing_bert's.

        Returns:
            The layer drop, and the configuration for `deepspeed.initialize`, without the block.

        Raises:
            ConfigError: there is no such block, or it is damaged.
        """
        if isinstance(config, str | Path):
            place, content = str(config), read_json_object(Path(config))
        else:
            place, content = "the DeepSpeed JSON", copy.deepcopy(dict(config))
        check_types(content, place)
        if "progressive_layer_drop" not in content:
            raise ConfigError(f"{place} has no block progressive_layer_drop; use LayerDrop itself")
        lifted, _ = lift_layer_drop(content, LayerDropSettings())
        values: dict[str, Any] = {"theta_bar": 1.0, "gamma": 1.0}  # disabled: every block runs
        if lifted.schedule != "none":
            values = lifted.model_dump(include={"schedule", "theta_bar", "gamma"})
        return cls(model, **values, **arguments), content

    def begin_step(self, finished_steps: int, micro_batch: int = 0) -> None:
        """Toss the coins of the next forward and backward passes, in a loop without an engine.

        Args:
            finished_steps: optimizer steps before this one: 0 at first.
            micro_batch: number of it in the step, from 0.

        Raises:
            ConfigError: a number is negative, or the model belongs to DeepSpeed's ZeRO.
        """
        if finished_steps < 0 or micro_batch < 0:
            raise ConfigError(
                f"begin_step({finished_steps}, {micro_batch}): steps and micro-batches count from 0"
            )
        weight = next(self.blocks[0].parameters())
        if self._hook is not None or hasattr(weight, "ds_id") or hasattr(weight, "_hp_mapping"):
            raise ConfigError(
                "the steps of this model are counted by its DeepSpeed engine: call attach(engine) "
                "once, after deepspeed.initialize, and begin_step never"
            )
        self._toss(finished_steps, micro_batch)

    def attach(self, engine: Any) -> None:
        """Follow the steps of a DeepSpeed engine, instead of calls of `begin_step`.

        At ZeRO stage 3, and with optimizer offload, the gradients of the step before are cleared:
        DeepSpeed would apply them again to blocks that are skipped. A skipped block has a gradient
        of zero at every stage: momentum and weight decay still move its weights.

        Args:
            engine: that `deepspeed.initialize` returned for the model.

        Raises:
            ConfigError: it is another model's, its gradients cannot be cleared, or it accumulates
                micro-batches with different blocks under offload.
        """
        if not set(self.blocks) <= set(engine.module.modules()):
            raise ConfigError("this engine trains another model than the one of this LayerDrop")
        offloads = str(engine.zero_offload_optimizer() and engine.zero_offload_optimizer().device)
        stage, accumulated = engine.zero_optimization_stage(), engine.gradient_accumulation_steps()
        is_offloaded = stage > 0 and "cpu" in offloads or "nvme" in offloads
        if is_offloaded and accumulated > 1 and self.settings.draw_per != "step":
            raise ConfigError(
                f"with optimizer offload and {accumulated} micro-batches in a step, DeepSpeed "
                'updates only blocks that run in the last one; use draw_per="step"'
            )
        stale = StaleGradients(engine.optimizer, stage, offloads=is_offloaded)

        def begin(module: nn.Module, inputs: Any) -> None:
            if module.training:
                micro_batch = engine.micro_steps % accumulated
                if micro_batch == 0:
                    stale.clear()
                self._toss(engine.global_steps, micro_batch)

        if self._hook is not None:
            self._hook.remove()
        self._hook = engine.module.register_forward_pre_hook(begin)

    def fill_missing_gradients(self) -> None:
        """Give skipped blocks a gradient of zero, as DeepSpeed does; call it before an update.

        Without it torch's optimizers leave a skipped block as it is; with it momentum and weight
        decay still move its weights, as the paper's runs did.
        """
        for block in self.blocks:
            for parameter in block.parameters():
                if parameter.requires_grad and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)

    def remove(self) -> None:
        """Leave the model as it was."""
        for block in self.blocks:
            vars(block).pop("forward", None)
        if self._hook is not None:
            self._hook.remove()

    def _toss(self, finished_steps: int, micro_batch: int) -> None:
        self.theta = theta_at(finished_steps, self.settings, self._total_steps)
        self.branch_scales = branch_scales(
            finished_steps,
            micro_batch if self.settings.draw_per == "micro_batch" else 0,
            self.settings,
            theta=self.theta,
            num_layers=len(self.blocks),
            seed=self._seed,
        )

    def _scale(self, number: int) -> float:
        if not self.branch_scales:
            raise ConfigError(
                "the coins of this step are not tossed: call begin_step(finished_steps) before a "
                "forward pass in training mode, or attach(engine) once"
            )
        return self.branch_scales[number]


class _DroppedForward:
    """The forward method of a block under layer drop."""

    def __init__(self, drop: LayerDrop, number: int, block: nn.Module) -> None:
        self._drop, self._number, self._block = drop, number, block
        self._forward = block.forward

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._forward, memo)

    # torch.compile would compile a graph for every pattern of coins and every scale; so it
    # compiles the blocks one by one.
    @torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator, no-untyped-call]
    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the block, or skip it."""
        if not self._block.training:
            return self._forward(*inputs, **named)
        scale = self._drop._scale(self._number)
        x: Tensor = inputs[0] if inputs else named["hidden_states"]
        structures, switches = self._drop._structures, _switches(inputs, named)
        if scale == 0:
            if switches not in structures:
                structures[switches] = self._structure(x, inputs, named)
            length = structures[switches]
            return x if length is None else (x, *[None] * (length - 1))
        output = self._forward(*inputs, **named)
        structures[switches] = _length(output, x, self._block)
        if scale == 1:
            return output
        if isinstance(output, Tensor):
            return _rescaled(x, output, scale)
        return (_rescaled(x, output[0], scale), *output[1:])

    def _structure(self, x: Tensor, inputs: Any, named: Any) -> int | None:
        """Run the block once, to see what it returns; no random number of the run is consumed."""
        devices = [x.device] if x.is_cuda else []
        with torch.random.fork_rng(devices), torch.no_grad():
            return _length(self._forward(*inputs, **named), x, self._block)


def _rescaled(x: Tensor, output: Tensor, scale: float) -> Tensor:
    return output + (output - x) * (scale - 1)


def _switches(inputs: Any, named: Any) -> tuple[Any, ...]:
    """Return the flags of a call, such as output_attentions, by which the output may differ."""
    flags = [(name, value) for name, value in named.items() if isinstance(value, bool)]
    return (*[value for value in inputs if isinstance(value, bool)], *flags)


def _length(output: Any, x: Tensor, block: nn.Module) -> int | None:
    """Return the length of the tuple that a block returned; None: it returned a tensor."""
    states = output[0] if isinstance(output, tuple) and output else output
    if not isinstance(states, Tensor) or states.shape != x.shape:
        found = list(states.shape) if isinstance(states, Tensor) else type(states).__name__
        raise ConfigError(
            f"a {type(block).__name__} maps hidden states of shape {list(x.shape)} to {found}; "
            "layer drop needs blocks that return states of the same shape, alone or first in a "
            "tuple"
        )
    return len(output) if isinstance(output, tuple) else None


def _checked(values: dict[str, Any]) -> LayerDropSettings:
    try:
        settings = LayerDropSettings(**values)
    except ValidationError as error:
        raise ConfigError(f"LayerDrop: {explain(error, LayerDropSettings)}") from None
    check_layer_drop(settings)
    return settings
