"""A model of transformers with its head for masked words, called as our encoder and head are.

Weights are named `encoder.base.X` for its own PREFIX.X, and `head.Y` for its own Y, so that an
encoder alone has the names of one with a head. Shapes as in positions.py; M = predicted positions.
"""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from data_prep.files.quoting import first_line
from pretrain.config.errors import ConfigError
from pretrain.config.settings import EncodingSettings, ModelSettings
from pretrain.config.settings.transformers_config import configuration_of, trusts_code
from pretrain.model.attached_positions import attach_positions
from pretrain.model.attention import at_positions
from pretrain.model.dropped_forward import DroppedForward
from pretrain.model.encoder import Scales
from pretrain.model.encoder_blocks import blocks_of
from pretrain.model.execution_plan import PLAIN, ExecutionPlan

# Type -> the parts of its head, one after the other: they map states of any number of tokens to
# logits. Other types compute the logits of all tokens.
HEADS: dict[str, tuple[str, ...]] = {
    "bert": ("cls",),
    "camembert": ("lm_head",),
    "deberta-v2": ("cls",),
    "distilbert": ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
    "electra": ("generator_predictions", "generator_lm_head"),
    "modernbert": ("head", "decoder"),
    "roberta": ("lm_head",),
    "xlm-roberta": ("lm_head",),
}


def build_whole(model: ModelSettings, execution: ExecutionPlan = PLAIN) -> Any:
    """Build a model of transformers with its head, drawing weights from torch's global generator.

    Its attention is "eager" or "sdpa" where `execution` asks for it, otherwise its own.

    Raises:
        ConfigError: such models have no head for masked words, or positions cannot be attached.
    """
    from transformers import AutoModelForMaskedLM

    assert isinstance(model.transformers, dict)
    config = configuration_of(model.transformers, model.folder)
    asked = {"attn_implementation": execution.attention} if execution.attention != "own" else {}
    try:
        whole: Any = AutoModelForMaskedLM.from_config(
            config, trust_remote_code=trusts_code(model.transformers), **asked
        )
        if execution.recomputes_blocks:
            whole.gradient_checkpointing_enable({"use_reentrant": False})
    except (ValueError, ImportError, AssertionError, RuntimeError) as error:
        raise ConfigError(f"a {config.model_type} cannot be trained: {first_line(error)}") from None
    is_decoder = config.is_encoder_decoder or getattr(config, "is_decoder", False)
    if is_decoder or (left := [name for name, _ in whole.named_parameters(recurse=False)]):
        reason = "has a decoder" if is_decoder else f"has {left[0]} outside"
        raise ConfigError(f"a {type(whole).__name__} {reason}; Tupelo trains encoders with a head")
    if model.positions != "own":
        values = model.model_dump(include=set(EncodingSettings.model_fields))
        attach_positions(whole, model.positions, **values)
    return whole


class TransformersEncoder(nn.Module):
    """The model of transformers without its head."""

    def __init__(self, whole: Any) -> None:
        """Take it out of the whole model."""
        super().__init__()
        self.base = whole.base_model
        self._whole = (whole,)  # in a tuple: its parts have other names here
        self._scales: list[float] = []
        self._forwards: list[DroppedForward] = []

    @property
    def whole(self) -> Any:
        """Return the model as transformers built it; it shares all modules."""
        return self._whole[0]

    @property
    def blocks(self) -> list[nn.Module]:
        """Return the blocks, first to last; none where they share weights, as ALBERT's."""
        try:
            return blocks_of(self.base, None)
        except ConfigError:
            return []

    @property
    def token_embeddings(self) -> Any:
        """Return the table of token embeddings."""
        return self.base.get_input_embeddings()

    def forward(
        self,
        ids_BS: Tensor,
        branch_scales: Scales = None,
        lengths_B: Tensor | None = None,
        positions_M: Tensor | None = None,
    ) -> Tensor:
        """Return the last states x_BSD, or x_MD; arguments as of `Encoder.forward`.

        A kept block is scaled as by `tupelo.LayerDrop`.
        """
        self.draw(branch_scales)
        x_BSD = self.base(**inputs_of(ids_BS, lengths_B))[0]
        return at_positions(x_BSD, positions_M)

    def draw(self, branch_scales: Scales) -> None:
        """Set the scales of the blocks in the next pass; None: all run whole."""
        # A deep copy of the model has plain methods in their place.
        if branch_scales is not None and DroppedForward not in map(type, self._forwards):
            self._forwards.clear()
            for number, block in enumerate(blocks_of(self.base, None)):
                scale = functools.partial(self._scales.__getitem__, number)
                self._forwards.append(DroppedForward(scale, block))
                self._forwards[-1].put()
        self._scales[:] = branch_scales or [1.0] * len(self._forwards)


def inputs_of(ids_BS: Tensor, lengths_B: Tensor | None) -> dict[str, Tensor | None]:
    """Return what a model of transformers takes: ids, and a mask where there is padding."""
    if lengths_B is None:
        return {"input_ids": ids_BS, "attention_mask": None}
    places_S = torch.arange(ids_BS.shape[1], device=ids_BS.device)
    return {"input_ids": ids_BS, "attention_mask": (places_S < lengths_B[:, None]).long()}


def head_of(whole: Any) -> nn.Module:
    """Return all parts of a whole model beside its encoder."""
    head = nn.Module()
    for name, part in whole.named_children():
        if name != whole.base_model_prefix:
            head.add_module(name, part)
    return head


def our_name(name: str, whole: Any) -> str:
    """Return the name here of a weight of a whole model."""
    prefix = f"{whole.base_model_prefix}."
    return f"encoder.base.{name[len(prefix) :]}" if name.startswith(prefix) else f"head.{name}"


def their_name(name: str, whole: Any) -> str:
    """Return the name in a whole model of a weight of ours."""
    return name.replace("encoder.base.", f"{whole.base_model_prefix}.", 1).removeprefix("head.")


def steps_of_head(whole: Any) -> tuple[str, ...]:
    """Return the parts of the head that map states of any tokens to logits; empty: not known."""
    steps = HEADS.get(whole.config.model_type, ())
    return steps if all(hasattr(whole, name) for name in steps) else ()


class Measured(NamedTuple):
    """Multiply-adds of a forward pass, as torch counts them."""

    block_per_row: float  # mean of all blocks
    outside_per_row: float
    head_per_token: float
    per_pass: float  # whatever its rows, as of the distances of DeBERTa
    predicts_words: bool  # the head is computed at the predictions only


def measured(model: ModelSettings, length: int) -> Measured:
    """Count the products of a model of transformers, in a pass on the host."""
    return _measured(model.model_dump_json(), length)


@functools.cache
def _measured(model: str, length: int) -> Measured:
    from torch.utils.flop_counter import FlopCounterMode

    # Not of shapes alone: some models look at the values of their masks. Products of the attention
    # kernel for CPUs are not counted.
    with torch.random.fork_rng([]), sdpa_kernel(SDPBackend.MATH):
        whole = build_whole(ModelSettings.model_validate_json(model)).eval().requires_grad_(False)
        names = {module: name for name, module in whole.base_model.named_modules()}
        blocks, kind = TransformersEncoder(whole).blocks, type(whole.base_model).__name__
        sums = []
        for rows in (1, 2):  # what does not grow with them is computed once in a pass
            ids_BS = torch.full((rows, length), 5)
            with FlopCounterMode(display=False) as of_all:
                whole(input_ids=ids_BS)
            with FlopCounterMode(display=False) as of_base:
                whole.base_model(input_ids=ids_BS)
            counts, base = of_base.get_flop_counts(), of_base.get_total_flops()
            in_blocks = sum(sum(counts[f"{kind}.{names[block]}"].values()) for block in blocks)
            sums.append((in_blocks, base - in_blocks, of_all.get_total_flops() - base))
    in_blocks, outside, head = (two - one for one, two in zip(*sums, strict=True))
    return Measured(
        in_blocks / max(1, len(blocks)) / 2,
        outside / 2,
        head / length / 2,
        (sum(sums[0]) - in_blocks - outside - head) / 2,
        predicts_words=bool(steps_of_head(whole)),
    )
