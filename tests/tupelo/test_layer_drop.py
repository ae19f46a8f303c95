"""Layer drop of models of transformers, against the same models whose every block runs."""

import copy
import functools

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel

import tupelo
from pretrain.config.errors import ConfigError
from pretrain.config.settings import LayerDropSettings
from pretrain.model.encoder_blocks import POST_NORM, PRE_NORM, blocks_of
from pretrain.schedules.layer_drop import branch_scales, theta_at
from tests.selection import mostly_slow

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "pad_token_id": 0,
}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
# Where types of models need it: other names, other widths, and small tables.
OTHER_SHAPES = {
    **SPECIAL,
    **{"attention_window": 4, "embedding_size": 32, "head_dim": 16, "image_size": 8, "n_embd": 32},
    **{"n_head": 2, "n_layer": 4, "num_key_value_heads": 2, "patch_size": 2},
}
# type of the model -> further settings
MODELS = {
    "bert": {},
    "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},  # returns tuples
    "distilbert": {"dim": 32, "n_layers": 4, "n_heads": 2, "hidden_dim": 64},
    "roberta-prelayernorm": {},
    "modernbert": SPECIAL,
}
IDS = torch.randint(5, 64, (2, 12), generator=torch.Generator().manual_seed(0))
INPUTS = {
    "input_ids": IDS,
    "pixel_values": torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)),
}
KEPT = [0, 1, 1, 0]


def build(kind="bert", *, dropout=0.0):
    torch.manual_seed(0)
    model = AutoModel.from_config(
        AutoConfig.for_model(kind, **{**SHAPE, **MODELS.get(kind, OTHER_SHAPES)})
    )
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    return model.train()


def outputs(model, **named):
    return model(**{model.main_input_name: INPUTS[model.main_input_name]}, **named)


def gradients(model, states):
    """Return the gradient of every weight, zeros where there is none."""
    states.square().mean().backward()
    return {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in model.named_parameters()
    }


def constant_drop(model, **settings):
    return tupelo.LayerDrop(model, schedule="constant", theta_bar=0.3, **settings)


def begin_step_with(drop, kept):
    """Begin the first step that keeps the wanted blocks."""
    for step in range(1000):
        drop.begin_step(step)
        if [int(scale > 0) for scale in drop.branch_scales] == kept:
            return
    raise AssertionError("no step has this drop mask")


def replaced_by(scale):
    """Return a hook that runs a block, and gives x, or x + (f(x) - x)/p, for its output."""

    def hook(block, inputs, output):
        x, states = inputs[0], output[0] if isinstance(output, tuple) else output
        states = x + (states - x) * scale
        return (states, *output[1:]) if isinstance(output, tuple) else states

    return hook


@pytest.mark.parametrize("kind", MODELS)
def test_blocks_of_any_encoder_are_skipped_or_scaled_and_gradients_follow(kind):
    model, reference = build(kind), build(kind)
    drop = constant_drop(model, rescale=True)
    begin_step_with(drop, KEPT)
    same = dict(reference.named_modules())
    names = [name for block in drop.blocks for name, m in model.named_modules() if m is block]
    for name, scale in zip(names, drop.branch_scales, strict=True):
        same[name].register_forward_hook(replaced_by(scale))
    states, expected = outputs(model)[0], outputs(reference)[0]
    torch.testing.assert_close(states, expected, rtol=1e-5, atol=1e-6)
    found, wanted = gradients(model, states), gradients(reference, expected)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_skipped_blocks_compute_nothing_and_have_no_gradient():
    model = build()
    drop = constant_drop(model)
    ran = []
    for number, block in enumerate(drop.blocks):
        block.intermediate.register_forward_hook(lambda *_, number=number: ran.append(number))
    begin_step_with(drop, KEPT)
    outputs(model)
    ran.clear()  # the first forward pass may run a block to see what it returns
    outputs(model)[0].sum().backward()
    assert ran == [1, 2]
    for kept, block in zip(KEPT, drop.blocks, strict=True):
        assert {weight.grad is not None for weight in block.parameters()} == {bool(kept)}
    drop.fill_missing_gradients()
    assert all(not weight.grad.any() for weight in drop.blocks[0].parameters())


@pytest.mark.parametrize("own", [{}, {"gamma": 0.01, "compat": "deepspeed"}])
def test_drop_masks_and_theta_are_those_of_training_here(own):
    drop = tupelo.LayerDrop(build(), theta_bar=0.4, total_steps=50, seed=7, rescale=True, **own)
    settings = LayerDropSettings(schedule="progressive", theta_bar=0.4, **own)
    for step, micro in ((0, 0), (3, 1), (49, 2)):
        drop.begin_step(step, micro)
        theta = theta_at(step, settings, 50)
        assert drop.theta == theta
        assert drop.branch_scales == branch_scales(
            step, micro, settings, theta=theta, num_layers=4, seed=7
        )


@pytest.mark.parametrize("kind", mostly_slow((*POST_NORM, *PRE_NORM), "further models"))
def test_blocks_that_return_the_output_of_a_norm_are_not_rescaled(kind):
    model, of_norms, of_blocks = build(kind), [], []
    for module in model.modules():
        if type(module).__name__.endswith("Norm"):
            module.register_forward_hook(lambda module, inputs, output: of_norms.append(output))
    drop = constant_drop(model)
    block = drop.blocks[1]
    block.register_forward_hook(lambda module, inputs, output: of_blocks.append(output))
    begin_step_with(drop, [1, 1, 1, 1])
    # The hook of the block sees f(x) if it is not rescaled.
    drop.branch_scales = [1.0] * 4
    outputs(model)
    states = of_blocks[0][0] if isinstance(of_blocks[0], tuple) else of_blocks[0]
    assert drop.settings.rescale != any(torch.equal(states, output) for output in of_norms)
    assert drop.settings.rescale == (kind in PRE_NORM)


def test_a_model_behind_a_wrapper_is_recognised():
    class Wrapper(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.config = {"train_batch_size": 8}  # as of a DeepSpeed engine
            self.module = model

    assert not constant_drop(Wrapper(build("bert"))).settings.rescale
    assert constant_drop(Wrapper(build("roberta-prelayernorm"))).settings.rescale
    both = nn.ModuleList([build("bert"), build("vit")])
    for model in both:
        drop = constant_drop(both, blocks=blocks_of(model, None))
        assert drop.settings.rescale == (model.config.model_type == "vit")


def test_a_resumed_loop_draws_the_dropout_of_the_straight_one():
    """The first block that is skipped in a process is run once to see what it returns."""
    model = build("deberta", dropout=0.1)
    drop = constant_drop(model)
    states = []
    for _ in range(2):  # at first nothing is known of the blocks, then everything
        torch.manual_seed(5)
        begin_step_with(drop, KEPT)
        states.append(outputs(model)[0])
    assert torch.equal(*states)


def test_evaluation_runs_every_block_and_so_does_a_copy():
    model, plain = build(), build().eval()
    drop = constant_drop(model)
    begin_step_with(drop, KEPT)
    twin = copy.deepcopy(model)
    expected = outputs(plain)[0]
    assert torch.equal(outputs(model.eval())[0], expected)
    assert torch.equal(outputs(twin)[0], expected)
    assert twin.encoder.layer[1].forward.__self__ is twin.encoder.layer[1]


def test_names_of_weights_stay_and_remove_leaves_the_forwards_of_others():
    model, plain = build(), build()
    names = list(model.state_dict())
    first, second, *_ = model.encoder.layer
    first.forward = earlier = functools.partial(first.forward)  # as accelerate's hooks do
    drop = constant_drop(model)
    assert list(model.state_dict()) == names
    begin_step_with(drop, KEPT)
    outputs(model)
    second.forward = later = functools.partial(plain.encoder.layer[1].forward)
    drop.remove()
    assert vars(first)["forward"] is earlier and vars(second)["forward"] is later
    assert torch.equal(outputs(model)[0], outputs(plain)[0])
    constant_drop(model)  # and another one can follow


def test_gradient_checkpointing_changes_nothing():
    found = []
    for checkpointed in (False, True):
        model = build(dropout=0.1)
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": True})
        begin_step_with(constant_drop(model), KEPT)
        torch.manual_seed(3)
        found.append(gradients(model, outputs(model)[0]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-7)


@pytest.mark.slow("traces a model")
def test_a_compiled_model_compiles_its_blocks_once_for_all_drop_masks():
    model, plain = build(), build()
    drop, of_plain = constant_drop(model), constant_drop(plain)
    graphs = []

    def counting(graph, example):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=counting)
    counts = []
    for step in range(6):
        drop.begin_step(step)
        of_plain.begin_step(step)
        torch.testing.assert_close(outputs(plain)[0], compiled(input_ids=IDS)[0])
        counts.append(len(graphs))
    assert len({tuple(drop.branch_scales) for drop in (drop, of_plain)}) == 1
    assert counts[1:] == [counts[1]] * 5


class Shrinking(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x[..., ::2] * self.weight


def refused(message):
    """Expect a ConfigError of one line."""
    return pytest.raises(ConfigError, match=rf"\A.*{message}.*\Z")


def test_a_mistake_is_one_clear_line():
    model = build()
    with refused("schedule='progressive' needs total_steps, or a gamma"):
        tupelo.LayerDrop(model)
    with refused("LayerDrop: theta_bar=1.5: .* less than or equal to 1"):
        tupelo.LayerDrop(model, total_steps=5, theta_bar=1.5)
    with refused("draw_per=4 exists in runs of Tupelo only"):
        constant_drop(model, draw_per=4)
    with refused(r"blocks=\[Linear\] are no modules of the BertModel"):
        constant_drop(model, blocks=[nn.Linear(2, 2)])
    with refused("name a module twice; blocks that share their weights"):
        constant_drop(model, blocks=[model.encoder.layer[0]] * 2)
    constant_drop(model)
    with refused(r"dropped already; call remove\(\) of the first"):
        constant_drop(model)
    with refused(r"call begin_step\(finished_steps\) before a forward pass"):
        outputs(model)
    lists = {name: nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]) for name in ("a", "b")}
    with refused("blocks of ModuleDict are not found: there are a, b; name them"):
        constant_drop(nn.ModuleDict(lists))
    shrinking = nn.ModuleDict({"blocks": nn.ModuleList([Shrinking(), Shrinking()])})
    with refused("know whether a block of ModuleDict returns the output of a norm"):
        constant_drop(shrinking)
    begin_step_with(constant_drop(shrinking, rescale=False), [1, 1])
    with refused(r"a Shrinking maps hidden states of shape \[2, 4\] to \[2, 2\]"):
        shrinking["blocks"][0](torch.ones(2, 4))
