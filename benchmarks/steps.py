"""Time training steps of several variants, which take turns in one process.

    python benchmarks/steps.py --list
    python benchmarks/steps.py [--variants bert-a tupe-r hugging-face] [--shape 4,256,128,32]
    python benchmarks/steps.py --variants tupe-r 'mine=--model.positions rope --model.norm pre'
    python benchmarks/steps.py --variants fp32 bf16 fp16 --losses 20

A shape is layers,width,length,sequences. A step of ours is that of a run: through the DeepSpeed
engine, with layer drop as scheduled. All learn one batch of random tokens. Times are from one
moment to another at which the device has finished; medians and quartiles over the rounds. `time` is
the median of the ratios to the first variant within a round, which a drift of the machine does not
touch; `FLOPs` is the share that layer drop left. `host` is the time until a step was issued: near
the median, the GPU waits for the host. `--losses N` compares the losses of N updates from the same
weights with those of the first variant instead. Under torchrun all ranks take part.
"""

import argparse
import functools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from tabulate import tabulate

from data_prep.files.atomic import save_text
from data_prep.files.program import run_program
from pretrain.config.batch import micro_sequences
from pretrain.config.ds_config import compute_type, read_ds_config
from pretrain.config.recipe import load_settings
from pretrain.config.settings import RunSettings
from pretrain.data.batches import MaskedBatch
from pretrain.distributed.hardware import peak_flops
from pretrain.distributed.ranks import Ranks, start_ranks, stop_ranks
from pretrain.engine.engine import StepResult
from pretrain.engine.launch import build_engine, checked_ds_config
from pretrain.engine.micro_batches import RandomBatches
from pretrain.schedules.step_plan import Schedule
from pretrain.train.recording.progress import Progress
from pretrain.train.recording.provenance import environment

BERT_A = ("--model.positions", "bert-a", "--model.norm", "pre")
TUPE_R = ("--model.positions", "tupe-r", "--model.norm", "pre")
DROP = (*TUPE_R, "--layer_drop.schedule", "constant", "--layer_drop.theta_bar", "0.5")
DROPOUT = ("--model.dropout", "0.1", "--model.attention_dropout", "0.1")
FUSED = ("--optimizer.kind", "deepspeed")
TORCH = (*TUPE_R, "--optimizer.kind", "torch", "--engine.ds_config")

# Name: settings, as on the command line of `tupelo train`.
VARIANTS: dict[str, tuple[str, ...]] = {
    "bert-a": BERT_A,
    "bert-a-post": (*BERT_A, "--model.norm", "post"),
    "tupe-r": TUPE_R,
    "tupe-a": (*TUPE_R, "--model.positions", "tupe-a"),
    "t5": (*TUPE_R, "--model.positions", "t5"),
    "rope": (*TUPE_R, "--model.positions", "rope"),
    "eager": (*TUPE_R, "--engine.attention", "eager"),
    "sdpa": (*TUPE_R, "--engine.attention", "sdpa"),
    "dropout": (*TUPE_R, *DROPOUT),
    "drop": DROP,
    "drop-dropout": (*DROP, *DROPOUT),
    "fp32": (*TORCH, "zero0_fp32"),
    "bf16": (*TORCH, "zero0_bf16_autocast"),
    "fp16": (*TORCH, "zero1_fp16"),
    "bf16-fused": (*TUPE_R, *FUSED, "--engine.ds_config", "zero0_bf16_autocast"),
    "fp16-fused": (*TUPE_R, *FUSED, "--engine.ds_config", "zero1_fp16"),
    **{
        f"zero{stage}": (*TUPE_R, "--engine.ds_config", f"zero{stage}_bf16_autocast")
        for stage in (1, 2, 3)
    },
}
THEIRS = {  # their precision; None: that of our `auto`
    "hugging-face": None,
    "hugging-face-fp32": torch.float32,
    "hugging-face-bf16": torch.bfloat16,
}
DEFAULTS = {"cpu": "4,256,128,32", "cuda": "12,768,512,64"}

# In training nothing waits between two steps. On a GPU a wait after each one would add the time in
# which the host issues the first kernels of the next.
STEPS_PER_ROUND = {"cpu": 1, "cuda": 5}
WARM_UP_STEPS = 2  # besides the first step, which compiles
LEARNING_RATE = 1e-4
BOUND = 0.02  # of fp16 and bf16 losses from fp32, relatively

COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "ms": ("median", lambda value: f"{value * 1e3:.{0 if value > 0.05 else 2}f}"),
    "quartiles": ("quartiles", lambda pair: " - ".join(f"{value * 1e3:.1f}" for value in pair)),
    "host ms": ("host", lambda value: f"{value * 1e3:.1f}"),
    "tokens/s": ("tokens_per_second", "{:,.0f}".format),
    "time": ("time", "{:.3f}".format),
    "FLOPs": ("flops_share", "{:.1%}".format),
    "MFU": ("model_flops_utilisation", "{:.1%}".format),
    "GiB": ("peak_memory_bytes", lambda value: f"{value / 2**30:.1f}"),
    "losses": ("losses", lambda losses: f"{losses[0]:.3f} - {losses[-1]:.3f}"),
    "from first": ("from_first", "{:.2%}".format),
    "execution": ("execution", str),
}


class Shape(NamedTuple):
    """Of the model and of the batch of one rank."""

    layers: int
    width: int
    length: int
    sequences: int


class OurStep:
    """Calling it takes one optimizer step through the DeepSpeed engine, without waiting."""

    def __init__(self, shape: Shape, vocabulary: int, words: tuple[str, ...], ranks: Ranks) -> None:
        """Build model and engine; `words` are settings as on the command line."""
        self.settings = settings_of(shape, vocabulary, ranks.world_size, words)
        config = checked_ds_config(self.settings, ranks)
        self.engine = build_engine(self.settings, config, ranks)
        self.peak = peak_of(ranks.device, compute_type(config))  # FLOP/s
        self._schedule = Schedule(self.settings, ranks.world_size)
        self._progress = Progress(self.settings, ranks.world_size)
        self._batch = random_batch(self.settings, pins=ranks.device == "cuda")
        self._step = 0
        self.flops_of_steps: list[float] = []  # of one rank

    def __call__(self) -> StepResult:
        """Take a step; reading the losses of its result waits for the device."""
        self._step += 1
        [scales] = self._schedule.plan(self._step).branch_scales
        self.flops_of_steps.append(self.flops(scales))
        return self.engine.train_step([(self._batch, scales)], LEARNING_RATE)

    def flops(self, scales: Sequence[float] | None = None) -> float:
        """Return the FLOPs of a step of one rank with these branch scales, or at full depth."""
        kept = [scale != 0 for scale in scales or [1.0] * self.settings.model.num_layers]
        return self._progress.pass_flops(kept) / self._progress.world_size


@functools.cache
def peak_of(device: Literal["cpu", "cuda"], dtype: torch.dtype) -> float:
    """Return the FLOP/s of dense products of this device; on a CPU they are measured."""
    return peak_flops(device, dtype).flops_per_second


def settings_of(shape: Shape, vocabulary: int, ranks: int, words: tuple[str, ...]) -> RunSettings:
    """Return the settings of a run with one micro-batch of this shape in a step of each rank."""
    numbers = {
        "steps": 1_000_000,
        "model.num_layers": shape.layers,
        "model.width": shape.width,
        "model.num_heads": max(1, shape.width // 64),
        "model.vocabulary_size": vocabulary,
        "model.max_sequence_length": shape.length,
        "data.sequence_length": shape.length,
        "batch.global_sequences": shape.sequences * ranks,
        "batch.micro_sequences": shape.sequences,
    }
    options = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    return load_settings("tiny_cpu", [*options, *words])


def random_batch(settings: RunSettings, *, pins: bool) -> MaskedBatch:
    """Return random tokens, 15 % of them to be predicted; pinned as the loader gives them."""
    batch = RandomBatches(settings, micro_sequences(settings, 1))[0]
    return MaskedBatch(*(part.pin_memory() for part in batch)) if pins else batch


def their_step(shape: Shape, vocabulary: int, dtype: Any, device: str) -> Callable[[], None]:
    """Return a step of Hugging Face's BertForMaskedLM: sdpa, fused AdamW, clipping at norm 1.

    Under autocast unless the type is fp32. On a GPU it is compiled, as our blocks are.
    """
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=max(1, shape.width // 64),
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    model = BertForMaskedLM(config).to(device)
    compute = torch.compile(model, dynamic=False) if device == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    batch = random_batch(settings_of(shape, vocabulary, 1, ()), pins=False)
    labels = torch.full_like(batch.ids_BS, -100)
    labels.view(-1)[batch.positions_M] = batch.labels_M
    inputs: dict[str, Any] = {"input_ids": batch.ids_BS.to(device), "labels": labels.to(device)}

    def step() -> None:
        with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
            loss = compute(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


class Turns:
    """Variants at one shape, and what was measured of them so far."""

    def __init__(self, arguments: argparse.Namespace, ranks: Ranks) -> None:
        self.arguments, self.ranks, self.began = arguments, ranks, time.perf_counter()
        self.shape = Shape(*map(int, (arguments.shape or DEFAULTS[ranks.device]).split(",")))
        self.steps: dict[str, Callable[[], Any]] = {}
        self.found: dict[str, dict[str, Any]] = {}
        self.failures: dict[str, str] = {}

    def run(self) -> None:
        """Build all variants, take their first steps, then time or compare them."""
        # All engines first: one that is built discards what was compiled before it.
        for text in self.arguments.variants:
            name, _, words = text.partition("=")
            self.attempt(name, self.build, name, words)
        for name in list(self.steps):
            self.attempt(name, self.compare_losses if self.arguments.losses else self.warm_up, name)
        if not self.arguments.losses and not self.arguments.warm:
            self.take_turns()
        self.write()

    def attempt(self, name: str, action: Callable[..., None], *words: str) -> None:
        """Do something with a variant; one that fails is left out, and the others go on."""
        try:
            if time.perf_counter() - self.began > self.arguments.deadline:
                raise TimeoutError("no time left")
            action(*words)
        except Exception as error:
            if self.ranks.world_size > 1:  # the others would wait
                raise
            lines = str(error).strip().splitlines() or [""]
            self.failures[name] = f"{type(error).__name__}: {lines[0]}"[:200]
            self.steps.pop(name, None)
            self.found.pop(name, None)
            print(f"{name}: {self.failures[name]}", file=sys.stderr, flush=True)

    def build(self, name: str, words: str) -> None:
        """Build a variant."""
        before, vocabulary = allocated(self.ranks.device), self.arguments.vocabulary
        if name in THEIRS:
            dtype = THEIRS[name] or compute_type(read_ds_config("auto", self.ranks.device))
            self.steps[name] = their_step(self.shape, vocabulary, dtype, self.ranks.device)
            execution = f"sdpa, {dtype}"
        else:
            chosen = tuple(words.split()) if words else VARIANTS[name]
            self.steps[name] = step = OurStep(self.shape, vocabulary, chosen, self.ranks)
            execution = step.engine.execution.describe()
        resident = allocated(self.ranks.device) - before
        self.found[name] = {"execution": execution, "resident_bytes": resident}

    def warm_up(self, name: str) -> None:
        """Take the first steps of a variant; note how long the first takes, and the memory."""
        before, begin = allocated(self.ranks.device), time.perf_counter()
        if self.ranks.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.take(name, 1)
        self.found[name]["first_step_seconds"] = time.perf_counter() - begin
        self.take(name, 0 if self.arguments.warm else WARM_UP_STEPS)
        if self.ranks.device == "cuda":
            more = torch.cuda.max_memory_allocated() - before
            self.found[name]["peak_memory_bytes"] = self.found[name]["resident_bytes"] + more
        self.write()

    def take_turns(self) -> None:
        """Take turns for the rounds that are asked for; results are written after each one."""
        count = STEPS_PER_ROUND[self.ranks.device]
        for _ in range(self.arguments.rounds):
            for name in self.steps:
                host, whole = self.take(name, count)
                self.found[name].setdefault("host_seconds", []).append(host / count)
                self.found[name].setdefault("seconds", []).append(whole / count)
            self.write()
            if time.perf_counter() - self.began > self.arguments.deadline:
                break

    def take(self, name: str, count: int) -> tuple[float, float]:
        """Take so many steps; return the seconds until they were issued, and until all was done."""
        begin = time.perf_counter()
        for _ in range(count):
            self.steps[name]()
        issued = time.perf_counter()
        if self.ranks.device == "cuda":
            torch.cuda.synchronize()
        return issued - begin, time.perf_counter() - begin

    def compare_losses(self, name: str) -> None:
        """Take so many updates; a step that fp16 skips counts as none.

        Raises:
            ValueError: the losses do not fall, or are not those of the first variant.
        """
        results: list[Any] = []
        while sum(not result.skipped for result in results) < self.arguments.losses:
            results.append(self.steps[name]())
            if len(results) > 3 * self.arguments.losses:
                raise ValueError("most of its steps overflow")
        losses = [float(one.losses.mean()) for one in results if not one.skipped]
        first = next(iter(self.found.values())).setdefault("losses", losses)
        differences = [abs(own - other) / other for own, other in zip(losses, first, strict=True)]
        self.found[name] |= {
            "losses": losses,
            "from_first": max(differences, key=lambda value: (math.isnan(value), value)),
            "skipped_steps": sum(one.skipped for one in results),
        }
        if not self.found[name]["from_first"] <= BOUND or not losses[-1] < losses[0]:
            raise ValueError(
                f"loss {losses[0]:.3f} to {losses[-1]:.3f}, "
                f"{self.found[name]['from_first']:.1%} from the first variant's"
            )

    def write(self) -> None:
        """Add what follows from the times, and write the file."""
        timed = {name: found for name, found in self.found.items() if "seconds" in found}
        for name, found in timed.items():
            low, median, high = statistics.quantiles(found["seconds"] * 2, n=4)
            pairs = zip(found["seconds"], next(iter(timed.values()))["seconds"], strict=False)
            tokens = self.shape.length * self.shape.sequences
            found |= {
                "median": median,
                "quartiles": (low, high),
                "tokens_per_second": tokens * self.ranks.world_size / median,
                "time": statistics.median(own / other for own, other in pairs),
            }
            if self.ranks.device == "cuda":
                found["host"] = statistics.median(found["host_seconds"])
            step = self.steps[name]
            if isinstance(step, OurStep):
                counted = step.flops_of_steps[1 + WARM_UP_STEPS :]
                flops = statistics.mean(counted)
                found["flops_share"] = flops / step.flops()
                found["model_flops_utilisation"] = flops / median / step.peak
        if self.arguments.json and self.ranks.is_first:
            results = {"shape": self.shape, "variants": self.found, "failures": self.failures}
            numbers = {"environment": environment(), "results": results}
            save_text(self.arguments.json, json.dumps(numbers, indent=1))

    def table(self) -> str:
        """Return a row for each variant, with the columns that there are numbers for."""
        found = self.found.values()
        columns = {
            title: one for title, one in COLUMNS.items() if any(one[0] in it for it in found)
        }
        rows = [
            [name, *(text(it[key]) if key in it else "" for key, text in columns.values())]
            for name, it in self.found.items()
        ]
        return tabulate(rows, headers=("", *columns), disable_numparse=True)


def allocated(device: str) -> int:
    """Return the bytes that tensors take on a GPU."""
    return torch.cuda.memory_allocated() if device == "cuda" else 0


def main() -> None:
    """Measure and print a table; the exit status is 1 if a variant failed."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--list", action="store_true", help="print the variants and their settings"
    )
    default = ["bert-a", "tupe-r", "hugging-face"]
    options.add_argument("--variants", nargs="+", default=default, metavar="NAME[=WORDS]")
    options.add_argument("--shape", help=f"default: {DEFAULTS['cpu']}; GPU: {DEFAULTS['cuda']}")
    options.add_argument("--vocabulary", type=int, default=30_528, help="default: BERT's, padded")
    options.add_argument("--rounds", type=int, default=15, help="of a step, on a GPU of five each")
    options.add_argument("--losses", type=int, metavar="N", help="compare losses of N updates")
    options.add_argument("--warm", action="store_true", help="first steps only: compile, and end")
    options.add_argument("--deadline", type=float, default=math.inf, help="seconds; then it ends")
    options.add_argument("--json", type=Path, help="write the numbers there, after each round")
    arguments = options.parse_args()
    if arguments.list:
        print(*(f"{name:15}{' '.join(words)}" for name, words in VARIANTS.items()), sep="\n")
        return
    unknown = [
        name for name in arguments.variants if name not in {*VARIANTS, *THEIRS} and "=" not in name
    ]
    if unknown:
        options.error(f"unknown variants {', '.join(unknown)}: see --list")

    ranks = start_ranks()
    turns = Turns(arguments, ranks)
    turns.run()
    if ranks.is_first:
        print(f"{turns.shape}, vocabulary {arguments.vocabulary:,}\n{turns.table()}")
    stop_ranks()
    if turns.failures:
        sys.exit("error: " + "; ".join(f"{name}: {why}" for name, why in turns.failures.items()))


if __name__ == "__main__":
    run_program(lambda _: main())
