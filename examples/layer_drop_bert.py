"""Train a BertForMaskedLM of transformers with an old bing_bert configuration of DeepSpeed.

    python examples/layer_drop_bert.py                     # a minute on a CPU
    torchrun --nproc-per-node 2 examples/layer_drop_bert.py --zero 3

The text is read as bytes, so that no tokenizer is needed; default: the documentation of Tupelo.
In a program of your own, `deepspeed` and its `init_distributed` replace what is of `pretrain`.
"""

import argparse
import copy
from pathlib import Path

import torch
from transformers import BertConfig, BertForMaskedLM

import tupelo
from pretrain.distributed.deepspeed_library import import_deepspeed
from pretrain.distributed.ranks import start_ranks, stop_ranks

MASK, VOCABULARY = 256, 257
ROWS, LENGTH = 16, 64

# DeepSpeed 0.19.8 refuses this: "Progressive Layer Dropping has been removed".
OLD_CONFIGURATION = {
    "train_micro_batch_size_per_gpu": ROWS,
    "gradient_clipping": 1.0,
    "steps_per_print": 10**9,
    "optimizer": {
        "type": "Adam",
        # torch's, which compiles nothing
        "params": {"lr": 3e-3, "weight_decay": 0.01, "torch_adam": True},
    },
    "progressive_layer_drop": {"enabled": True, "theta": 0.5, "gamma": 0.05},
}


def main() -> None:
    """Train, and print the loss and how many blocks ran."""
    options = read_options()
    ranks = start_ranks()
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 256}
    model = BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, num_hidden_layers=8, **shape))
    ds_config = configuration(options)
    old = ds_config.pop("progressive_layer_drop")
    drop = tupelo.LayerDrop(model, theta_bar=old["theta"], gamma=old["gamma"])
    engine, *_ = import_deepspeed().initialize(
        model=model, model_parameters=model.parameters(), config=ds_config
    )
    drop.attach(engine)  # draws the drop mask of each step, and clears what ZeRO would apply again
    text = torch.frombuffer(
        bytearray(b"".join(map(Path.read_bytes, options.text))), dtype=torch.uint8
    )
    ran = 0
    for step in range(options.steps):
        rows = masked_rows(text, seed=step * ranks.world_size + ranks.rank)
        loss = engine(**{name: each.to(engine.device) for name, each in rows.items()}).loss
        engine.backward(loss)
        engine.step()
        ran += sum(scale > 0 for scale in drop.branch_scales)
        if ranks.rank == 0 and (step + 1) % 10 == 0:
            share = ran / (step + 1) / len(drop.blocks)
            print(
                f"step {step + 1}: loss {loss.item():.3f}, theta {drop.theta:.2f}, {share:.0%} ran"
            )
    stop_ranks()


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", nargs="*", type=Path, help="text files")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--zero", type=int, default=1, choices=range(4), help="ZeRO stage")
    options = parser.parse_args()
    options.text = options.text or sorted(Path(__file__).parents[1].glob("docs/*.md"))
    return options


def configuration(options: argparse.Namespace) -> dict:
    """Return the old configuration at a ZeRO stage."""
    config = copy.deepcopy(OLD_CONFIGURATION)
    config["zero_optimization"] = {"stage": options.zero}
    return config


def masked_rows(text: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    """Return random rows of text, 15 % of their bytes hidden; -100 marks what is not predicted."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - LENGTH, (ROWS, 1), generator=generator)
    rows = text[starts + torch.arange(LENGTH)].long()
    hidden = torch.rand(rows.shape, generator=generator) < 0.15
    return {
        "input_ids": rows.masked_fill(hidden, MASK),
        "labels": rows.masked_fill(~hidden, -100),
    }


if __name__ == "__main__":
    main()
