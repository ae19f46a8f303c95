"""Training steps to be timed: ours, as they are trained, and those of Hugging Face's model.

The same random tokens for all, 15 % of them predicted, no dropout. A step is forward, backward,
clipping at norm 1 and AdamW.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pretrain.config.ds_config import compute_type, fill_ds_config, read_ds_config
from pretrain.config.recipe import load_settings
from pretrain.config.settings import RunSettings
from pretrain.data.batches import MaskedBatch
from pretrain.distributed.ranks import Ranks
from pretrain.engine.engine import StepResult
from pretrain.engine.launch import build_engine
from pretrain.engine.zero_choice import with_fitted_buckets
from pretrain.profiling.hardware import MEASURED_SHAPES, measured_peak_flops
from pretrain.schedules.layer_drop import BranchScale
from pretrain.train.benchmark import RandomBatches
from pretrain.train.recording.progress import Progress

VOCABULARY = 30_528
LEARNING_RATE = 1e-4
Scales = Callable[[], Sequence[BranchScale]]


@dataclass(frozen=True)
class Shape:
    """Of the model and of the batch of one rank."""

    layers: int
    width: int
    length: int
    sequences: int
    vocabulary: int = VOCABULARY

    @property
    def tokens(self) -> int:
        """Return the tokens of a step."""
        return self.length * self.sequences

    def __str__(self) -> str:
        return (
            f"{self.layers} layers, width {self.width}, {self.sequences} x {self.length} tokens, "
            f"vocabulary {self.vocabulary:,}"
        )


class OurStep:
    """Calling it takes one optimizer step through the DeepSpeed engine, without waiting."""

    def __init__(
        self,
        shape: Shape,
        ds_config: str,
        ranks: Ranks,
        *words: str,
        scales: Scales | None = None,
        accumulation: int = 1,
    ) -> None:
        """Build model and engine.

        Args:
            shape: of model and batch.
            ds_config: name of a file in ds_configs/, or auto.
            ranks: from `start_ranks`.
            words: more settings, as on the command line.
            scales: gives the branch scales of each micro-batch; default: full depth.
            accumulation: micro-batches of this shape in a step.
        """
        settings = settings_of(shape, ranks.world_size * accumulation, *words)
        config = fill_ds_config(
            read_ds_config(ds_config, ranks.device), settings, world_size=ranks.world_size
        )
        self.engine = build_engine(settings, with_fitted_buckets(config, settings), ranks)
        # Hooks of ZeRO hold the engine: at stages 1 and 2 until it is destroyed, at 3 for good.
        weakref.finalize(self, self.engine._engine.destroy).atexit = False
        self.progress = Progress(settings, ranks.world_size)
        self.dtype = compute_type(config)
        batch = RandomBatches(settings, shape.sequences)[0]
        # As the loader gives it: from pinned memory the copy does not wait for the device.
        pins = ranks.device == "cuda"
        self._batch = MaskedBatch(*(part.pin_memory() for part in batch)) if pins else batch
        self._scales = scales or (lambda: [1.0] * shape.layers)
        self._accumulation = accumulation

    def __call__(self) -> StepResult:
        """Take a step; reading the losses of its result waits for the device."""
        micro_batches = [(self._batch, self._scales()) for _ in range(self._accumulation)]
        return self.engine.train_step(micro_batches, LEARNING_RATE)

    def flops(self, kept: Sequence[float]) -> float:
        """Return the FLOPs of a micro-batch of one rank in which these blocks run."""
        return self.progress.pass_flops(kept) / self.progress.world_size


def precision_of_auto(ranks: Ranks) -> torch.dtype:
    """Return the type in which `auto` computes here."""
    return compute_type(read_ds_config("auto", ranks.device))


def settings_of(shape: Shape, micro_batches: int, *words: str) -> RunSettings:
    """Return the settings of a run with so many micro-batches of this shape in a step."""
    numbers = {
        "model.num_layers": shape.layers,
        "model.width": shape.width,
        "model.num_heads": shape.width // 64,
        "model.vocabulary_size": shape.vocabulary,
        "model.max_sequence_length": shape.length,
        "data.sequence_length": shape.length,
        "batch.global_sequences": shape.sequences * micro_batches,
        "batch.micro_sequences": shape.sequences,
    }
    options = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    return load_settings("tiny_cpu", [*options, *words])


def hugging_face_step(shape: Shape, device: str, dtype: torch.dtype) -> Callable[[], None]:
    """Return a step of Hugging Face's BertForMaskedLM with torch's attention.

    Under autocast unless the type is fp32. On a GPU it is compiled, as our blocks are.
    """
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.width // 64,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    model = BertForMaskedLM(config).to(device)
    compute = torch.compile(model, dynamic=False) if device == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    batch = RandomBatches(settings_of(shape, 1), shape.sequences)[0]
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


def measured_peak(ranks: Ranks, dtype: torch.dtype) -> float:
    """Return the FLOP/s that a large matrix product reaches here and now."""
    return measured_peak_flops(ranks.device, dtype, *MEASURED_SHAPES[ranks.device])
