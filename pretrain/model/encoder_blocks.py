"""The blocks of an encoder that somebody else wrote."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from pretrain.config.errors import ConfigError

# Types of models of transformers whose blocks return the output of a LayerNorm.
POST_NORM = (
    *("bert", "camembert", "convbert", "deberta", "deberta-v2", "distilbert", "electra", "ernie"),
    *("longformer", "mpnet", "nomic_bert", "nystromformer", "roberta", "xlm-roberta"),
)
# Those whose blocks add to their hidden states.
PRE_NORM = (
    *("esm", "eurobert", "gpt2", "llama", "megatron-bert", "modernbert"),
    *("roberta-prelayernorm", "vit", "xlm-roberta-xl"),
)


def blocks_of(model: nn.Module, given: Sequence[nn.Module] | None) -> list[nn.Module]:
    """Return the blocks of a model, first to last.

    They are the one `ModuleList` of at least two modules of one class; of several, the one with as
    many as `model.config.num_hidden_layers` says, which models of transformers have. `given` are
    those that the caller names instead.

    Raises:
        ConfigError: they cannot be told apart from other lists, or are no blocks of the model.
    """
    if given is None:
        return _found(model)
    blocks, inside = list(given), set(model.modules())
    named = f"blocks=[{', '.join(type(block).__name__ for block in blocks)}]"
    if not blocks or not all(block in inside for block in blocks):
        raise ConfigError(f"{named} are no modules of the {type(model).__name__}")
    if len(set(blocks)) < len(blocks):
        raise ConfigError(
            f"{named} name a module twice; blocks that share their weights, as ALBERT's, cannot be "
            "skipped one by one"
        )
    return blocks


def is_post_norm(model: nn.Module, blocks: Sequence[nn.Module]) -> bool:
    """Return whether blocks of a model end in a norm, as BERT's do.

    The innermost module around them with a type of model decides: the outer one may be a wrapper.

    Raises:
        ConfigError: it is not known of models of this type.
    """
    configs: list[Any] = [
        vars(module).get("config")
        for module in model.modules()  # the outer ones first
        if set(blocks) < set(module.modules())
    ]
    types = [config.model_type for config in configs if hasattr(config, "model_type")]
    kind = types[-1] if types else type(model).__name__
    if kind not in POST_NORM + PRE_NORM:
        raise ConfigError(
            f"LayerDrop does not know whether a block of {kind} returns the output of a norm: give "
            "rescale=False if it does, as BERT's (PostLN), else rescale=True"
        )
    return kind in POST_NORM


def _found(model: nn.Module) -> list[nn.Module]:
    lists = {
        name: list(module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) > 1 and len(set(map(type, module))) < 2
    }
    # Lists inside the blocks, such as experts, are no candidates.
    outer = {
        name: blocks
        for name, blocks in lists.items()
        if not any(name.startswith(f"{other}.") for other in lists)
    }
    config: Any = vars(model).get("config")
    if len(outer) > 1 and hasattr(config, "num_hidden_layers"):
        depth = config.num_hidden_layers
        outer = {name: blocks for name, blocks in outer.items() if len(blocks) == depth}
    if len(outer) != 1:
        listed = f"there are {', '.join(outer)}" if outer else "there is no list of equal modules"
        raise ConfigError(
            f"the blocks of {type(model).__name__} are not found: {listed}; name them, as in "
            "blocks=model.encoder.layer"
        )
    (blocks,) = outer.values()
    return blocks
