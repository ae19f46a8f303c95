"""Progressive layer drop for models that are not ours, under any training loop.

DeepSpeed had it until 0.19.7, as `progressive_layer_drop` in its JSON (Zhang & He, NeurIPS 2020):
its `theta` is theta_bar here. Schedule and drop masks are of pretrain/schedules/layer_drop.py.

A block x -> f(x) that is skipped returns x: neither forward nor backward pass are computed. A kept
PreLN block returns x + (f(x) - x) / p, p its keep probability, so that the expected output is f(x),
given x. bing_bert, and the blocks of this package, divide each branch by p inside the block
instead: x + a/p + F(x + a/p)/p for attention a and feed-forward F, against x + (a + F(x + a))/p
here. Both are f(x) at p = 1, and equal if F does not depend on a.

A kept PostLN block returns f(x): beyond it, x + (f(x) - x) / p is no longer normalised. bing_bert
had layer drop for PreLN alone; LayerDrop (Fan et al., ICLR 2020) does not rescale either.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from pretrain.config.errors import ConfigError
from pretrain.config.settings import LayerDropSettings, explained
from pretrain.model.dropped_forward import DroppedForward
from pretrain.model.encoder_blocks import blocks_of, is_post_norm
from pretrain.schedules.layer_drop import branch_scales, check_layer_drop, theta_at

TIMELESS = ("none", "constant")  # schedules in which theta depends on no step


class LayerDrop:
    """Skips blocks of a model while it trains; in evaluation mode every block runs.

    The names of the weights stay as they are. Drop masks are functions of (seed, finished steps,
    micro-batch): equal on all ranks, and in a resumed run those of the straight one. A deep copy
    of the model runs every block.

    Attributes:
        theta: keep ratio of the last block in the current step.
        branch_scales: a number per block: 0 skips it, others are its 1/p, or 1 without rescale.
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
        rescale: bool | None = None,
        **settings: Any,
    ) -> None:
        """Put drop masks between the model and its blocks.

        Args:
            model: such as an encoder of transformers, before or after `deepspeed.initialize`. A
                block takes hidden states first, and returns them, or a tuple that begins with them.
            total_steps: optimizer steps of the run, from which gamma = 100 / total_steps follows.
            schedule: of theta, the keep ratio of the last block, as `layer_drop.schedule`.
            seed: of the drop masks.
            blocks: to be dropped, such as model.encoder.layer; default: found, see `blocks_of`.
            rescale: whether a kept block returns x + (f(x) - x) / p, or f(x); default: the first
                if `config.model_type` of the module that holds them is one of PRE_NORM, the second
                if it is one of POST_NORM.
            settings: theta_bar (0.5), gamma, draw_per ("micro_batch", or "step") and compat
                ("deepspeed": bing_bert's keep probabilities and scales), as the settings
                `layer_drop.*` of a recipe.

        Raises:
            ConfigError: there are no such settings, the blocks are not found or dropped already, or
                `rescale` is not given and the type is of neither list.
        """
        self.blocks = blocks_of(model, blocks)
        if rescale is None:
            rescale = schedule == "none" or not is_post_norm(model, self.blocks)
        given = {"schedule": schedule, "rescale": rescale, **settings}
        self.settings = _checked(given, num_layers=len(self.blocks))
        has_gamma = isinstance(self.settings.gamma, float)
        if total_steps is None and not has_gamma and schedule not in TIMELESS:
            raise ConfigError(f"schedule={schedule!r} needs total_steps, or a gamma if it has one")
        if (total_steps is not None and total_steps < 1) or seed < 0:
            raise ConfigError(f"total_steps={total_steps} and seed={seed}: give 1 and 0, or more")
        if any(isinstance(vars(block).get("forward"), DroppedForward) for block in self.blocks):
            raise ConfigError(
                f"blocks of the {type(model).__name__} are dropped already; call remove() of the "
                "first LayerDrop"
            )
        self._total_steps, self._seed = total_steps or 1, seed
        self.theta, self.branch_scales = 1.0, list[float]()
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self._forwards = [
            DroppedForward(functools.partial(self._scale, number), block)
            for number, block in enumerate(self.blocks)
        ]
        for forward in self._forwards:
            forward.put()

    def begin_step(self, finished_steps: int, micro_batch: int = 0) -> None:
        """Draw the drop mask of the next forward and backward passes, in a loop without an engine.

        Args:
            finished_steps: optimizer steps before this one: 0 at first.
            micro_batch: number of it in the step, from 0.

        Raises:
            ConfigError: the model belongs to DeepSpeed's ZeRO.
        """
        weight = next(self.blocks[0].parameters())
        if self._hook is not None or hasattr(weight, "ds_id") or hasattr(weight, "_hp_mapping"):
            raise ConfigError(
                "the steps of this model are counted by its DeepSpeed engine: call attach(engine) "
                "once, after deepspeed.initialize, and begin_step never"
            )
        self._draw(finished_steps, micro_batch)

    def attach(self, engine: Any) -> None:
        """Follow the steps of a DeepSpeed engine, instead of calls of `begin_step`.

        At ZeRO stage 3 the gradients of the step before are cleared: DeepSpeed would apply them
        again to blocks that are skipped. A skipped block has a gradient of zero at every stage:
        momentum and weight decay still move its weights.

        Args:
            engine: that `deepspeed.initialize` returned for the model.

        Raises:
            ConfigError: it is another model's, offloads its optimizer, or accumulates different
                blocks with overlap_comm at stage 1.
        """
        if not set(self.blocks) <= set(engine.module.modules()):
            raise ConfigError("this engine trains another model than the one of this LayerDrop")
        stage, offload = engine.zero_optimization_stage(), engine.zero_offload_optimizer()
        if stage > 0 and offload is not None and offload.device in ("cpu", "nvme"):
            raise ConfigError("layer drop does not work with offload_optimizer; leave it out")
        accumulated = engine.gradient_accumulation_steps()
        overlaps = stage == 1 and engine.zero_overlap_comm()
        if accumulated > 1 and self.settings.draws is None and overlaps:
            raise ConfigError(
                f"with overlap_comm at stage 1 and {accumulated} micro-batches a step, DeepSpeed "
                'loses gradients of blocks that are skipped in the last one; use draw_per="step"'
            )

        def begin(module: nn.Module, inputs: Any) -> None:
            if module.training:
                micro_batch = engine.micro_steps % accumulated
                if micro_batch == 0 and stage == 3:
                    engine.optimizer.grad_partitions_flat_buffer.zero_()
                self._draw(engine.global_steps, micro_batch)

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
        for forward in self._forwards:
            forward.remove()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _draw(self, finished_steps: int, micro_batch: int) -> None:
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
                "this step has no drop mask: call begin_step(finished_steps) before a "
                "forward pass in training mode, or attach(engine) once"
            )
        return self.branch_scales[number]


def _checked(values: dict[str, Any], *, num_layers: int) -> LayerDropSettings:
    with explained("LayerDrop: ", LayerDropSettings):
        settings = LayerDropSettings(**values)
    check_layer_drop(settings, num_layers)
    if settings.draws not in (None, 1):
        raise ConfigError(
            f"LayerDrop: draw_per={settings.draw_per!r} exists in runs of Tupelo only; choose "
            '"micro_batch" or "step"'
        )
    return settings
