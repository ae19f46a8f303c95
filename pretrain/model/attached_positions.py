"""Another position encoding for a BERT of transformers, such as the untied positions of TUPE.

transformers look up the function that computes the attention by name. Ours adds the terms of an
encoding of pretrain/model/positions.py to queries, keys and scores.

Shape letters as in pretrain/model/positions.py.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.config.errors import ConfigError
from pretrain.config.settings import ModelSettings, explained
from pretrain.config.settings.transformers_config import FIELDS
from pretrain.model.encoder import build_position_encoding, initialise
from pretrain.model.position_encoding import PositionEncoding, PositionTerms, transform_query_key
from pretrain.model.torch_attention import right_kernels

# Their self-attention is BERT's, their position table is added to the words.
BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
ATTENTION = "tupelo_positions"
SHAPE = (
    *("width", "num_heads", "num_layers", "feedforward_width"),
    *("vocabulary_size", "max_sequence_length"),
)


def attach_positions(model: nn.Module, positions: str, **settings: Any) -> PositionEncoding:
    """Replace the absolute positions of a BERT by an encoding in the attention of all its layers.

    Call it before `deepspeed.initialize` and before the optimizer is built. Positions are places
    in a row, from 0 for [CLS] on: padding follows the text, and `position_ids` are not read.
    Gradient checkpointing must not be reentrant, as it is not by default. `output_attentions` gives
    none. After `set_attn_implementation` with another attention a pass raises a ConfigError.

    Args:
        model: bert, roberta, xlm-roberta, camembert or electra of transformers, with any head.
        positions: as `model.positions`: "tupe-r", "tupe-a", "rope" ...
        settings: of the encoding, as `model.*` in a recipe: cls_reset, relative_buckets,
            relative_max_distance, position_projection_bias.

    Returns:
        The encoding, with new weights. It is the submodule `positions` of the model without its
        head, so it is trained, saved and moved with it. To load the weights, build the model,
        attach again, and call `safetensors.torch.load_model` on the file of `save_pretrained`.

    Raises:
        ConfigError: the model is another, has an encoding already, or there is no such encoding.
    """
    config: Any = vars(model).get("config")
    base: Any = getattr(model, "base_model", None)
    kind = getattr(config, "model_type", type(model).__name__)
    if kind not in BERT_LIKE:
        raise ConfigError(
            f"positions can be attached to {', '.join(BERT_LIKE)} of transformers, not to {kind}"
        )
    if config.is_decoder or hasattr(base, "positions"):
        reason = "is a decoder" if config.is_decoder else "has attached positions already"
        raise ConfigError(f"positions cannot be attached: this {type(model).__name__} {reason}")
    encoding = _build(config, positions, settings)
    initialise(encoding, config.initializer_range)
    _register_attention()
    weight = base.embeddings.word_embeddings.weight
    base.positions = encoding.to(device=weight.device, dtype=weight.dtype)
    base.embeddings.position_embeddings = _NoPositions()
    copies: dict[int, Any] = {}  # other models that were built from the config keep their attention
    for module in model.modules():
        if "config" in vars(module):  # what modules share they still share
            vars(module)["config"] = copy.deepcopy(vars(module)["config"], copies)
    model.set_attn_implementation(ATTENTION)  # type: ignore[operator]
    for layer in base.encoder.layer:
        layer.attention.self.scaling = encoding.score_scale  # such as 1/sqrt(2d)
    base.encoder.register_forward_pre_hook(_TermsOfPass(base), with_kwargs=True)
    return encoding


class _NoPositions(nn.Module):
    """Takes the place of the table that is added to the words."""

    def forward(self, position_ids: Tensor) -> Tensor:
        # ZeRO stage 3 asks for a tensor; one of no dimension leaves the dtype of the words.
        return torch.zeros((), device=position_ids.device)


class _TermsOfPass:
    """Computes the terms of the positions once in a forward pass, for all layers."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def __call__(self, encoder: nn.Module, inputs: Any, named: Any) -> Any:
        """Add the terms to what the encoder passes on to its layers, and they to the attention.

        Raises:
            ConfigError: another attention has been chosen, which would ignore them.
        """
        chosen = self.base.config._attn_implementation
        if chosen != ATTENTION:
            raise ConfigError(
                f"the attention {chosen!r} knows no attached positions: call "
                f"set_attn_implementation({ATTENTION!r})"
            )
        x_BSD: Tensor = inputs[0] if inputs else named["hidden_states"]
        terms = self.base.positions.terms(x_BSD.shape[1], device=x_BSD.device)
        return inputs, {**named, "position_terms": terms}


def _attend(
    module: nn.Module,
    q_BNSH: Tensor,
    k_BNSH: Tensor,
    v_BNSH: Tensor,
    attention_mask: Tensor | None,
    *,
    position_terms: PositionTerms | None = None,
    scaling: float,
    dropout: float = 0.0,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Compute attention with the terms of positions; a mask of bools is True where it attends."""
    del module, unused
    if position_terms is None:  # of a model that was made from the configuration of another
        raise ConfigError("this model has no attached positions: call attach_positions on it")
    q_BNSH, k_BNSH = transform_query_key(q_BNSH, k_BNSH, position_terms)
    added = attention_mask
    if position_terms.bias_NSS is not None:
        added = position_terms.bias_NSS[None].to(q_BNSH.dtype)
        if attention_mask is not None and attention_mask.dtype == torch.bool:
            added = added.masked_fill(~attention_mask, torch.finfo(added.dtype).min)
        elif attention_mask is not None:  # of the caller, added to the scores
            added = added + attention_mask.to(added.dtype)
    with right_kernels(q_BNSH, added):
        mixed_BNSH = F.scaled_dot_product_attention(
            q_BNSH, k_BNSH, v_BNSH, attn_mask=added, dropout_p=dropout, scale=scaling
        )
    return mixed_BNSH.transpose(1, 2).contiguous(), None


def _register_attention() -> None:
    import transformers

    if int(transformers.__version__.partition(".")[0]) < 5:
        raise ConfigError(
            "attached positions need the attention functions of transformers 5, this is "
            f"{transformers.__version__}; upgrade it"
        )
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ATTENTION, _attend)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def _build(config: Any, positions: str, settings: dict[str, Any]) -> PositionEncoding:
    of_model = {name: getattr(config, FIELDS[name][0]) for name in SHAPE}
    if known := sorted(of_model.keys() & settings):
        raise ConfigError(f"attach_positions: {', '.join(known)} as in the model; leave it out")
    with explained("attach_positions: ", ModelSettings):
        model = ModelSettings(positions=positions, **of_model, **settings)
    encoding = build_position_encoding(model)
    if type(encoding).add_to_embeddings is not PositionEncoding.add_to_embeddings:
        raise ConfigError(
            f"positions={positions!r} are added to the words, as those of the model are already; "
            "attach an encoding that acts in the attention, such as tupe-r"
        )
    if encoding.has_relative_keys:
        raise ConfigError(
            f"positions={positions!r} differ from layer to layer, and those that are attached are "
            "one for all layers; attach another encoding, such as tupe-r"
        )
    return encoding
