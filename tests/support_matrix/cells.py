"""Every combination of ZeRO stage, precision, layer drop and so on; which of them are refused."""

import functools
import itertools
from typing import NamedTuple

from pretrain.config.ds_config import compute_type, fill_ds_config, read_ds_config
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import DEFAULT_OBJECTIVE, REPLACED_TOKEN_DETECTION
from pretrain.engine.execution import AMPERE, Machine, plan_execution

LAYERS, LENGTH, VOCABULARY, ROWS = 3, 16, 64, 2
STEPS = 4


class Cell(NamedTuple):
    """One combination."""

    stage: int
    precision: str
    drops_layers: bool
    recomputes: bool
    micro_batches: int  # of a rank, for one optimizer step
    compiles: bool
    objective: str
    ranks: int

    @property
    def places(self):
        """Micro-batches of all ranks in an optimizer step."""
        return self.micro_batches * self.ranks


STAGES = (0, 1, 2, 3)
PRECISIONS = ("fp32", "bf16_autocast", "bf16", "fp16", "fp16_autocast")
OBJECTIVES = (DEFAULT_OBJECTIVE, REPLACED_TOKEN_DETECTION)


def all_cells(ranks):
    choices = (STAGES, PRECISIONS, (False, True), (False, True), (1, 2), (False, True), OBJECTIVES)
    return [Cell(*values, ranks) for values in itertools.product(*choices)]


@functools.cache
def settings_of(cell):
    """Return settings in which blocks often rest for whole steps.

    Dropout is drawn alike in fp32 only, and only by code that is not compiled: there it shows
    whether a block that is computed again draws what it drew before.
    """
    has_dropout = cell.precision == "fp32" and not cell.compiles
    layer_drop = ("--layer_drop.schedule", "constant", "--layer_drop.theta_bar", "0.3")
    generator = ("--electra.generator_width", "0.5")
    return load_settings(
        "tiny_cpu",
        [
            *("--steps", str(STEPS), "--data.sequence_length", str(LENGTH)),
            *("--model.num_layers", str(LAYERS), "--model.vocabulary_size", str(VOCABULARY)),
            *("--model.dropout", "0.1" if has_dropout else "0.0"),
            *("--batch.global_sequences", str(ROWS * cell.places)),
            *("--batch.micro_sequences", str(ROWS)),
            *("--learning_rate.peak", "0.01", "--optimizer.max_gradient_norm", "0.5"),
            *("--optimizer.weight_decay", "0.1"),
            *(layer_drop if cell.drops_layers else ()),
            *("--objective", cell.objective),
            *(generator if cell.objective == REPLACED_TOKEN_DETECTION else ()),
            *("--engine.recompute_blocks", str(cell.recomputes).lower()),
            *("--engine.compile_blocks", "on" if cell.compiles else "off"),
        ],
    )


def ds_config_of(cell):
    """Return the DeepSpeed JSON as the shipped files have it, for every combination."""
    if cell.precision == "fp16_autocast":
        config = read_ds_config("zero1_bf16_autocast", "cuda")
        config["torch_autocast"]["dtype"] = "torch.float16"
    else:
        config = read_ds_config(f"zero1_{cell.precision}", "cuda")
    config["zero_optimization"]["stage"] = cell.stage
    if "fp16" in config:
        config["fp16"]["initial_scale_power"] = 8  # 2^16 overflows at first, as it is meant to
    return config


@functools.cache
def refusal(cell):
    """Return why a run with this combination does not start on a GPU, None if it does."""
    try:
        # As on a GPU, so that fp16 is not refused for want of one.
        config = fill_ds_config(ds_config_of(cell), settings_of(cell), world_size=cell.ranks)
        machine = Machine("cuda", compute_type(config), cell.stage, AMPERE)
        plan_execution(settings_of(cell), machine)
    except ConfigError as error:
        return str(error)
    return None


def supported(ranks):
    """Return the combinations that can be tried; of ELECTRA those in fp32.

    In 16 bits its generator may draw another word, so that losses cannot be compared.
    """
    return [
        cell
        for cell in all_cells(ranks)
        if cell.precision == "fp32" or cell.objective == DEFAULT_OBJECTIVE
        if refusal(cell._replace(ranks=2)) is None  # as in the table; their number refuses nothing
    ]


def chosen_cells(ranks):
    """Return which of the combinations are tried on so many ranks: compiling takes long."""
    both = [cell for count in (1, 2) for cell in supported(count) if not cell.compiles]
    return [cell for cell in covering(both) if cell.ranks == ranks]


def covering(cells):
    """Return few of the cells, with every pair of values that occurs in one of them."""

    def pairs(cell):
        return set(itertools.combinations(enumerate(cell), 2))

    left = {pair for cell in cells for pair in pairs(cell)}
    found = []
    while left:
        found.append(max(cells, key=lambda cell: len(left & pairs(cell))))
        left -= pairs(found[-1])
    return found
