"""Time one training step against Hugging Face's BertForMaskedLM, side by side in one run.

    python benchmarks/step_time.py [--layers 4 --width 256 --length 128 --sequences 32]

Forward, backward, clipping and AdamW on the same random tokens, with 15 % of them predicted and
no dropout. The variants take turns, step by step, so that a machine whose speed drifts slows all
of them; medians and quartiles are printed. Ours is measured as it trains: through the DeepSpeed
engine (ZeRO-1), bf16 autocast. Run it on a quiet machine.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

# As in run_pretrain.sh; glibc reads them when the process starts, so it is started again.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "8589934592",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}


def main() -> None:
    """Time all variants and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, default=30_528)
    parser.add_argument("--steps", type=int, default=15, help="counted steps of each variant")
    arguments = parser.parse_args()
    if "MALLOC_TOP_PAD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})
    variants = {
        "Hugging Face, fp32": hugging_face_step(arguments, bf16=False),
        "Hugging Face, bf16": hugging_face_step(arguments, bf16=True),
        "Tupelo bert-a post, bf16": our_step(arguments, "bert-a", "post"),
        "Tupelo tupe-r pre, bf16": our_step(arguments, "tupe-r", "pre"),
    }
    print_table(alternate(variants, arguments.steps), arguments)


def alternate(variants: dict[str, Callable[[], None]], steps: int) -> dict[str, list[float]]:
    """Run every variant in turn and return the seconds of each step; two rounds warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for round_number in range(steps + 2):
        for name, step in variants.items():
            start = time.perf_counter()
            step()
            if round_number >= 2:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def our_step(arguments: argparse.Namespace, positions: str, norm: str) -> Callable[[], None]:
    """Return a function that takes one step of ours."""
    from pretrain.data import MaskedBatch
    from pretrain.ds_config import fill_ds_config, read_ds_config
    from pretrain.engine import Engine, start_ranks
    from pretrain.model.encoder import MaskedLanguageModel
    from pretrain.recipe import load_settings

    numbers = {
        "model.num_layers": arguments.layers,
        "model.width": arguments.width,
        "model.num_heads": arguments.width // 64,
        "model.vocabulary_size": arguments.vocabulary,
        "model.max_sequence_length": arguments.length,
        "data.sequence_length": arguments.length,
        "model.positions": positions,
        "model.norm": norm,
        "batch.global_sequences": arguments.sequences,
        "batch.micro_sequences": arguments.sequences,
    }
    words = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    settings, ranks = load_settings("tiny_cpu", words), start_ranks()
    config = read_ds_config("zero1_bf16_autocast", ranks.device)
    filled = fill_ds_config(config, settings, world_size=1, device=ranks.device)
    engine = Engine(MaskedLanguageModel(settings.model), settings, filled, ranks)
    ids, chosen = random_batch(arguments)
    batch = MaskedBatch(ids, chosen, ids.view(-1)[chosen])
    everything = [1.0] * arguments.layers

    def step() -> None:
        engine.train_step([(batch, everything)], 1e-4).losses.item()
        engine.synchronize()

    return step


def hugging_face_step(arguments: argparse.Namespace, *, bf16: bool) -> Callable[[], None]:
    """Return a function that takes one step of Hugging Face's model under a plain loop."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = BertConfig(
        vocab_size=arguments.vocabulary,
        hidden_size=arguments.width,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.width // 64,
        intermediate_size=4 * arguments.width,
        max_position_embeddings=arguments.length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, chosen = random_batch(arguments)
    labels = torch.full_like(ids, -100)
    labels.view(-1)[chosen] = ids.view(-1)[chosen]
    ids, labels = ids.to(device), labels.to(device)

    def step() -> None:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step


def random_batch(arguments: argparse.Namespace):  # type: ignore[no-untyped-def]
    """Return ids_BS and the flat positions to predict."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shape = (arguments.sequences, arguments.length)
    ids = torch.randint(5, arguments.vocabulary, shape, generator=generator)
    count = round(0.15 * arguments.length) * arguments.sequences
    return ids, torch.randperm(ids.numel(), generator=generator)[:count]


def print_table(seconds: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    """Print medians, quartiles, tokens per second and ratios to the second variant."""
    from tabulate import tabulate

    tokens = arguments.sequences * arguments.length
    reference = statistics.median(seconds["Hugging Face, bf16"])
    rows = []
    for name, measured in seconds.items():
        low, median, high = statistics.quantiles(measured, n=4)
        spread = f"{low * 1e3:.0f} - {high * 1e3:.0f}"
        rows.append(
            (
                name,
                f"{median * 1e3:.0f}",
                spread,
                f"{tokens / median:,.0f}",
                f"{reference / median:.2f}",
            )
        )
    headers = ("", "median ms", "quartiles", "tokens/s", "x Hugging Face bf16")
    print(
        f"{arguments.layers} layers, width {arguments.width}, {arguments.sequences} x "
        f"{arguments.length} tokens, vocabulary {arguments.vocabulary}, {arguments.steps} steps"
    )
    print(tabulate(rows, headers=headers, disable_numparse=True))


if __name__ == "__main__":
    main()
