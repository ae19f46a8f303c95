"""A BertForMaskedLM under layer drop, trained by a plain loop and by DeepSpeed at every ZeRO stage.

One configuration has attached positions too.

As a program (`python`, `torchrun`): trains under each named configuration and writes what happened
to a JSON file, for the tests to compare:

    layer_drop_case.py FOLDER CONFIGURATION ...
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as distributed
from transformers import BertConfig, BertForMaskedLM

import tupelo
from pretrain.distributed.deepspeed_library import import_deepspeed
from pretrain.distributed.ranks import start_ranks, stop_ranks

STEPS, PLACES, RATE, CLIP = 6, 4, 0.01, 0.5
# name -> ZeRO stage, and whether all micro-batches of a step skip the same blocks
CONFIGURATIONS = {
    "stage0": (0, False),
    "stage1": (1, False),
    "stage2": (2, False),
    "stage3": (3, True),
    "stage3_attached": (3, False),
}
RESUMED = ("stage1", "stage3")
ATTACHED = ("stage3_attached",)


def build_model(name=""):
    torch.manual_seed(1)
    shape = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    shape |= {"intermediate_size": 64, "max_position_embeddings": 16}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForMaskedLM(BertConfig(**shape, **none)).train()
    if name in ATTACHED:
        tupelo.attach_positions(model, "tupe-r")
    return model


def build_drop(model, *, per_step):
    """Blocks are often skipped in whole steps; with `per_step` in all micro-batches alike."""
    draw_per = "step" if per_step else "micro_batch"
    return tupelo.LayerDrop(
        model, schedule="constant", theta_bar=0.1, draw_per=draw_per, seed=3, rescale=True
    )


def build_optimizer(model):
    # 1e-8 would move weights by the rounding of gradients that are as small.
    return torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1, eps=1e-6)


def batch_of(step, place):
    generator = torch.Generator().manual_seed(1000 * step + place)
    ids = torch.randint(5, 64, (2, 16), generator=generator)
    return {"input_ids": ids, "labels": ids.roll(1, 1)}


def plain_loop(name, ranks):
    """Train with nothing but PyTorch; place p of a step is micro-batch p // ranks of a rank."""
    model = build_model(name)
    drop = build_drop(model, per_step=CONFIGURATIONS[name][1])
    optimizer = build_optimizer(model)
    losses, skipped = [], 0
    for step in range(STEPS):
        optimizer.zero_grad()
        total, ran = 0.0, [0.0] * 3
        for place in range(PLACES):
            drop.begin_step(step, place // ranks)
            ran = [most or scale for most, scale in zip(ran, drop.branch_scales, strict=True)]
            loss = model(**batch_of(step, place)).loss
            (loss / PLACES).backward()
            total += loss.item()
        skipped += ran.count(0.0)
        drop.fill_missing_gradients()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(total / PLACES)
    assert skipped >= 2, "a test of skipped blocks skips some in all micro-batches of a step"
    return losses, {name: weight.detach() for name, weight in model.named_parameters()}


def ds_config(name, ranks):
    return {
        "train_batch_size": 2 * PLACES,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": PLACES // ranks,
        "gradient_clipping": CLIP,
        "zero_optimization": {"stage": CONFIGURATIONS[name][0]},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
    }


def build_engine(name, ranks):
    model = build_model(name)
    drop = build_drop(model, per_step=CONFIGURATIONS[name][1])
    engine, *_ = import_deepspeed().initialize(
        model=model, optimizer=build_optimizer(model), config=ds_config(name, ranks.world_size)
    )
    drop.attach(engine)
    return engine


def train_steps(engine, ranks, steps):
    losses = []
    for step in steps:
        total = torch.zeros(1)
        for micro in range(PLACES // ranks.world_size):
            loss = engine(**batch_of(step, micro * ranks.world_size + ranks.rank)).loss
            engine.backward(loss)
            engine.step()
            total += loss.detach()
        distributed.all_reduce(total)
        losses.append(total.item() / PLACES)
    return losses


def found_under(name, ranks, folder):
    """Return losses and weights, and of some the losses after a stop and a resume at step 3."""
    from deepspeed.utils import safe_get_full_fp32_param

    engine = build_engine(name, ranks)
    losses = train_steps(engine, ranks, range(STEPS))
    named = engine.module.named_parameters()
    if engine.zero_optimization_stage() == 0:
        weights = {name: weight.tolist() for name, weight in named}
    else:
        weights = {name: safe_get_full_fp32_param(weight).tolist() for name, weight in named}
    found = {"losses": losses, "weights": weights}
    if name in RESUMED:
        first = build_engine(name, ranks)
        train_steps(first, ranks, range(3))
        first.save_checkpoint(str(folder / name), tag="three")
        distributed.barrier()
        second = build_engine(name, ranks)
        second.load_checkpoint(str(folder / name), tag="three")
        found["resumed"] = train_steps(second, ranks, range(3, STEPS))
    return found


def main(folder, *names):
    ranks = start_ranks()
    found = {name: found_under(name, ranks, Path(folder)) for name in names}
    if ranks.rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    stop_ranks()


if __name__ == "__main__":
    main(*sys.argv[1:])
