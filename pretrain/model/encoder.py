"""The encoder, the choice of its position encoding, and the initial values of a model.

Shape letters as in positions.py; M = predicted positions.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from data_prep.settings import is_changed
from pretrain.config.errors import ConfigError, lookup
from pretrain.config.settings import EncodingSettings, ModelSettings
from pretrain.model.attention import at_positions
from pretrain.model.attention_backends import ATTENTION_BACKENDS, terms_of_pass
from pretrain.model.blocks import Block, WideLayerNorm
from pretrain.model.execution_plan import PLAIN, ExecutionPlan
from pretrain.model.position_encoding import PositionEncoding, PositionSettings
from pretrain.model.position_tables import BUCKETS
from pretrain.model.positions import POSITION_ENCODINGS

# torch counts the graphs of all compiled blocks of a process together, and a further one than this
# ends the run. A run needs 4: for training and for evaluation, one for the last block that runs and
# one for the others; each network of ELECTRA has its own. Programs with several models, as
# benchmarks, need 4 for each; a process that reaches this number compiles something anew at every
# step.
RECOMPILE_LIMIT = 128

# Of all blocks in a micro-batch: 0 skips one, others scale its branches. None: each runs as it is.
Scales = Sequence[float] | None


class BlockStack(nn.Module):
    """Positions, the blocks that share them, and a last norm if norm = "pre"."""

    positions: PositionEncoding

    def __init__(self, model: ModelSettings, execution: ExecutionPlan) -> None:
        """Begin; a subclass adds `positions` and what stands before the blocks, then blocks."""
        super().__init__()
        self.execution = execution
        self.draws_dropout = model.dropout > 0 or model.attention_dropout > 0

    def add_blocks(self, model: ModelSettings) -> None:
        """Add the blocks and the last norm."""
        settings = PositionSettings(**model.model_dump())
        own = (self.positions.score_scale, ATTENTION_BACKENDS[self.execution.attention])
        self.blocks = nn.ModuleList(Block(settings, *own) for _ in range(model.num_layers))
        epsilon = model.layer_norm_epsilon
        self.final_norm = WideLayerNorm(model.width, epsilon) if model.norm == "pre" else None
        self.scales_new_branches = model.branch_initialisation == "depth_scaled"
        if self.execution.compiles_blocks:
            import torch._dynamo  # takes two seconds

            torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
            # Equal blocks share a graph, whichever of them run, and a second one for the last that
            # runs, where some positions are wanted only. The whole encoder would be compiled anew
            # for every pattern of skipped blocks.
            for block in self.blocks:
                block.compile(dynamic=False, fullgraph=True)

    def run_blocks(
        self, x: Tensor, branch_scales: Scales, lengths_B: Tensor | None, positions_M: Tensor | None
    ) -> Tensor:
        """Return the hidden states of the input x_BSD; arguments as of `Encoder.forward`.

        Raises:
            ValueError: there are more or fewer scales than blocks.
        """
        scales = [None] * len(self.blocks) if branch_scales is None else branch_scales
        if len(scales) != len(self.blocks):
            raise ValueError(
                f"there are {len(scales)} branch_scales for {len(self.blocks)} blocks; give one "
                "number for each"
            )
        kind, dtype, length = x.device.type, x.dtype, x.shape[1]
        if torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
        terms = terms_of_pass(
            self.positions, self.execution.attention, length, device=x.device, dtype=dtype
        )
        kept = [layer for layer, scale in enumerate(scales) if scale != 0]
        for layer in kept:
            wanted_M = positions_M if layer == kept[-1] else None
            own = self.positions.of_layer(terms, layer, length)
            scale = self._given(scales[layer], x)
            x = self._run(self.blocks[layer], x, own, scale, lengths_B, wanted_M)
        x = x if kept else at_positions(x, positions_M)
        return x if self.final_norm is None else self.final_norm(x)

    @torch.no_grad()
    def scale_branches(self) -> None:
        """Divide the output weights of both branches of each block by sqrt(2 L)."""
        for block in self.blocks:
            assert isinstance(block, Block)
            for output in (block.attention.output, block.feedforward.output):
                output.weight /= math.sqrt(2 * len(self.blocks))

    def _given(self, scale: float | None, x: Tensor) -> float | Tensor | None:
        if scale is None or not self.execution.compiles_blocks:
            return scale
        # A kernel fills it in: a copy from the host would wait for the device.
        # In fp32 at least: bf16 would turn 12/11 into 12/11 + 0.3 % at every step.
        dtype = torch.promote_types(x.dtype, torch.float32)
        return x.new_full((), scale, dtype=dtype)

    def _run(self, block: nn.Module, *inputs: Any) -> Tensor:
        if not self.execution.recomputes_blocks or not torch.is_grad_enabled():
            output: Tensor = block(*inputs)
            return output
        recomputed: Tensor = checkpoint(
            block, *inputs, use_reentrant=False, preserve_rng_state=self.draws_dropout
        )
        return recomputed


class Encoder(BlockStack):
    """Token ids to hidden states: embeddings, norm, blocks, and a last norm if norm = "pre"."""

    def __init__(self, model: ModelSettings, execution: ExecutionPlan = PLAIN) -> None:
        super().__init__(model, execution)
        self.token_embeddings = nn.Embedding(model.vocabulary_size, model.width)
        self.positions = build_position_encoding(model)
        self.embedding_norm = WideLayerNorm(model.width, eps=model.layer_norm_epsilon)
        self.dropout = nn.Dropout(model.dropout)
        self.add_blocks(model)

    def forward(
        self,
        ids_BS: Tensor,
        branch_scales: Scales = None,
        lengths_B: Tensor | None = None,
        positions_M: Tensor | None = None,
    ) -> Tensor:
        """Return the hidden states x_BSD, or x_MD of some positions.

        Args:
            ids_BS: token ids, int64.
            branch_scales: one number per block: 0.0 skips it, other values scale its branches.
                None (evaluation) runs every block as it is.
            lengths_B: number of tokens of each sequence, int32; None: all are full.
            positions_M: flat positions `sequence * S + place` that are wanted; None: all. The
                last block that runs computes what follows its attention at these only.
        """
        return self.run_blocks(self.embed(ids_BS), branch_scales, lengths_B, positions_M)

    def embed(self, ids_BS: Tensor) -> Tensor:
        """Return x_BSD, the input of the first block."""
        x_BSD: Tensor = self.positions.add_to_embeddings(self.token_embeddings(ids_BS))
        embedded_BSD: Tensor = self.dropout(self.embedding_norm(x_BSD))
        return embedded_BSD


def build_position_encoding(model: ModelSettings) -> PositionEncoding:
    """Build the encoding that `model.positions` names.

    Raises:
        ConfigError: there is no such encoding, it cannot have this shape, or a setting has no
            effect in it.
    """
    encoding = lookup(POSITION_ENCODINGS, model.positions, setting="model.positions")
    settings = PositionSettings(**model.model_dump())
    obstacle = encoding.obstacle(settings)
    if obstacle is not None:
        raise ConfigError(f"model.positions={model.positions!r}: {obstacle}")
    # Sweeps over encodings give buckets to all of them.
    for name in EncodingSettings.model_fields:
        if is_changed(model, name) and name not in (*encoding.own_settings, *BUCKETS):
            kinds = POSITION_ENCODINGS.items()
            readers = ", ".join(other for other, kind in kinds if name in kind.own_settings)
            raise ConfigError(
                f"model.{name}={vars(settings)[name]} has no effect with model.positions="
                f"{model.positions!r}, but with {readers}; remove it"
            )
    return encoding(settings)


def initialise(model: nn.Module, standard_deviation: float) -> None:
    """Draw the weights as BERT does (Devlin et al. 2018; TUPE's code does the same).

    linear weights, embeddings (words, positions, relative buckets)    N(0, standard_deviation)
    linear biases, output bias, LayerNorm biases                       0
    LayerNorm weights                                                  1

    With model.branch_initialisation = "depth_scaled" the output weights of both branches of each
    block are divided by sqrt(2 L) (Radford et al. 2019, Sec. 2.3; bing_bert): the sum of 2 L
    branches then has the variance of one.

    Draws from torch's global generator: seed it before.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=standard_deviation)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for stack in model.modules():
        if isinstance(stack, BlockStack) and stack.scales_new_branches:
            stack.scale_branches()
