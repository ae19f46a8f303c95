"""Training steps to be timed: ours, as they are trained, and those of Hugging Face's model.

The same random tokens for all, 15 % of them predicted, no dropout. A step is forward, backward,
clipping at norm 1 and AdamW.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pretrain.config.ds_config import compute_type, fill_ds_config, read_ds_config
from pretrain.config.recipe import load_settings
from pretrain.config.settings import RunSettings
from pretrain.distributed.ranks import Ranks
from pretrain.engine.launch import build_engine
from pretrain.engine.zero_choice import with_fitted_buckets
from pretrain.profiling.hardware import MEASURED_SHAPES, measured_peak_flops
from pretrain.train.benchmark import RandomBatches
from pretrain.train.progress import Progress

VOCABULARY = 30_528
Scales = Callable[[], Sequence[float]]


@dataclass(frozen=True)
class Shape:
    """Of the model and of the batch of one rank."""

    layers: int
    width: int
    length: int
    sequences: int

    @property
    def tokens(self) -> int:
        """Return the tokens of a step."""
        return self.length * self.sequences

    def __str__(self) -> str:
        return (
            f"{self.layers} layers, width {self.width}, {self.sequences} x {self.length} tokens, "
            f"vocabulary {VOCABULARY:,}"
        )


class OurStep:
    """Calling it takes one optimizer step through the DeepSpeed engine."""

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
            read_ds_config(ds_config, ranks.device),
            settings,
            world_size=ranks.world_size,
            device=ranks.device,
        )
        self.engine = build_engine(settings, with_fitted_buckets(config, settings), ranks)
        self.progress = Progress(settings, ranks.world_size)
        self.dtype = compute_type(config)
        self._batch = RandomBatches(settings, shape.sequences)[0]
        self._scales = scales or (lambda: [1.0] * shape.layers)
        self._accumulation = accumulation

    def __call__(self) -> None:
        """Take a step and wait until the device has finished."""
        micro_batches = [(self._batch, self._scales()) for _ in range(self._accumulation)]
        self.engine.train_step(micro_batches, 1e-4).losses.tolist()
        self.engine.synchronize()

    def flops(self, kept: Sequence[bool]) -> float:
        """Return the FLOPs of a micro-batch of one rank in which these blocks run."""
        return self.progress.pass_flops(kept) / self.progress.world_size


def settings_of(shape: Shape, micro_batches: int, *words: str) -> RunSettings:
    """Return the settings of a run with so many micro-batches of this shape in a step."""
    numbers = {
        "model.num_layers": shape.layers,
        "model.width": shape.width,
        "model.num_heads": shape.width // 64,
        "model.vocabulary_size": VOCABULARY,
        "model.max_sequence_length": shape.length,
        "data.sequence_length": shape.length,
        "batch.global_sequences": shape.sequences * micro_batches,
        "batch.micro_sequences": shape.sequences,
    }
    options = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    return load_settings("tiny_cpu", [*options, *words])


def hugging_face_step(shape: Shape, device: str, dtype: torch.dtype) -> Callable[[], None]:
    """Return a step of Hugging Face's BertForMaskedLM, under autocast unless the type is fp32."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.width // 64,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = RandomBatches(settings_of(shape, 1), shape.sequences)[0]
    labels = torch.full_like(batch.ids_BS, -100)
    labels.view(-1)[batch.positions_M] = batch.labels_M
    inputs: dict[str, Any] = {"input_ids": batch.ids_BS.to(device), "labels": labels.to(device)}

    def step() -> None:
        with torch.autocast(device, dtype=dtype, enabled=dtype is not torch.float32):
            loss = model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step


def measured_peak(ranks: Ranks, dtype: torch.dtype) -> float:
    """Return the FLOP/s that a large matrix product reaches here and now."""
    return measured_peak_flops(ranks.device, dtype, *MEASURED_SHAPES[ranks.device])
