"""A model of transformers by its own Trainer on the rows of shards: one side of a comparison.

It is what transformers' example `run_mlm` does: Trainer, AdamW with a linear schedule, masks by
DataCollatorForLanguageModeling.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from data_prep.masking import IGNORED
from data_prep.shards.format import ShardSet
from pretrain.config.ds_config import compute_type, read_ds_config
from pretrain.config.settings import RunSettings
from pretrain.data.batches import HeldOutBatches, Place
from pretrain.model.execution_plan import ExecutionPlan
from pretrain.model.transformers_encoder import build_whole

SPEED_STEPS, SPEED_WARM_UP = 24, 8
EVALUATIONS = 20

Curve = list[tuple[int, float, float]]  # step, seconds of training, held-out loss in nats


class HeldOut(TrainerCallback):  # type: ignore[misc]
    """Takes the held-out loss now and then, and the time of the steps alone."""

    def __init__(self, settings: RunSettings, shards: ShardSet, every: int) -> None:
        self._batches = HeldOutBatches(shards, settings, Place(32, 0, 1))
        self._every, self._began, self._seconds = every, 0.0, 0.0
        self.curve: Curve = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to count, at the first step and after an evaluation."""
        self._began = self._began or time.perf_counter()

    def on_step_end(
        self, args: Any, state: Any, control: Any, *, model: Any = None, **_: Any
    ) -> None:
        """Evaluate when it is time."""
        if state.global_step % self._every and state.global_step != state.max_steps:
            return
        self._seconds += time.perf_counter() - self._began
        self._began = 0.0
        loss = self.loss_of(model)
        self.curve.append((state.global_step, self._seconds, loss))
        print(f"step {state.global_step:,}, {self._seconds:.0f} s: held-out loss {loss:.4f}")

    def loss_of(self, model: Any) -> float:
        """Return the mean cross-entropy of the held-out predictions in nats."""
        total, count = 0.0, 0
        model.eval()
        with torch.no_grad():
            for index in range(len(self._batches)):
                batch = self._batches[index]
                logits = model(input_ids=batch.ids_BS.to(model.device)).logits
                predicted = logits.flatten(0, 1)[batch.positions_M.to(model.device)].float()
                labels = batch.labels_M.to(model.device)
                total += float(
                    torch.nn.functional.cross_entropy(
                        predicted, labels, ignore_index=IGNORED, reduction="sum"
                    )
                )
                count += batch.num_predictions()
        model.train()
        return total / count


def their_run(
    settings: RunSettings,
    shards: ShardSet,
    rate: float,
    minutes: float,
    folder: Path,
    dtype: torch.dtype,
) -> Curve:
    """Train a model of transformers by its Trainer; the model stays in `folder`.

    Their schedule spans a number of steps: as many as fit into the time at the speed that a few
    steps have just before.
    """
    seconds = seconds_per_step(settings, shards, folder, dtype)
    steps = max(EVALUATIONS, round(60 * minutes / seconds))
    held_out = HeldOut(settings, shards, max(1, steps // EVALUATIONS))
    trainer = their_trainer(settings, shards, folder, dtype, rate, steps, [held_out])
    trainer.train()
    trainer.save_model(str(folder))
    return held_out.curve


def their_trainer(
    settings: RunSettings,
    shards: ShardSet,
    folder: Path,
    dtype: torch.dtype,
    rate: float,
    steps: int,
    callbacks: Sequence[TrainerCallback],
) -> Trainer:
    """Return the Trainer of a new model."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(shards.folder / "tokenizer.json"),
        mask_token="[MASK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
    )
    optimizer, split = settings.optimizer, shards.split("train")
    torch.manual_seed(settings.seed)
    return Trainer(
        model=build_whole(settings.model, ExecutionPlan("own")),
        args=TrainingArguments(
            output_dir=str(folder / "trainer"),
            per_device_train_batch_size=settings.batch.global_sequences,
            max_steps=steps,
            learning_rate=rate,
            warmup_steps=round(settings.learning_rate.warmup_ratio * steps),
            lr_scheduler_type="linear",
            weight_decay=optimizer.weight_decay,
            adam_beta1=optimizer.betas[0],
            adam_beta2=optimizer.betas[1],
            max_grad_norm=optimizer.max_gradient_norm,
            bf16=dtype is torch.bfloat16,
            fp16=dtype is torch.float16,
            use_cpu=not torch.cuda.is_available(),
            seed=settings.seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
        ),
        # In memory, so that reading single sequences from a disk does not slow theirs down.
        train_dataset=[{"input_ids": ids} for ids in split.read(np.arange(split.num_sequences))],
        data_collator=DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=settings.data.masked_probability
        ),
        processing_class=tokenizer,
        callbacks=[*callbacks],
    )


class StepTimes(TrainerCallback):  # type: ignore[misc]
    """The end of each step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the time."""
        self.ends.append(time.perf_counter())


def seconds_per_step(
    settings: RunSettings, shards: ShardSet, folder: Path, dtype: torch.dtype
) -> float:
    """Return the mean of a few steps of theirs."""
    times = StepTimes()
    steps = SPEED_WARM_UP + SPEED_STEPS
    their_trainer(settings, shards, folder, dtype, 1e-6, steps, [times]).train()
    return (times.ends[-1] - times.ends[SPEED_WARM_UP - 1]) / SPEED_STEPS


def fastest_precision(settings: RunSettings, shards: ShardSet, folder: Path) -> torch.dtype:
    """Return the precision in which their steps take less time: fp32, or that of our runs."""
    ours = compute_type(read_ds_config("auto", "cuda" if torch.cuda.is_available() else "cpu"))
    return min(
        {torch.float32, ours},
        key=lambda dtype: seconds_per_step(settings, shards, folder / "speed", dtype),
    )
