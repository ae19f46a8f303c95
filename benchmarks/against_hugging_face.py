"""Pre-train with Tupelo and with transformers for the same wall time, on the same rows.

    python benchmarks/against_hugging_face.py tupe_r --minutes 30 --seeds 1 2 3 --to FOLDER \
        --data.shards data/NAME --model.num_layers 4 --model.width 256

Theirs is what transformers' example `run_mlm` does: BertForMaskedLM, Trainer, AdamW with a linear
schedule, masks by DataCollatorForLanguageModeling; BERT's shape is that of the recipe, without
dropout, in the precision in which it is faster here. Ours is `tupelo train RECIPE`. Both read the
rows of the same shards with the same tokenizer, in batches of the same size, take the best of the
same peak learning rates (trials of a quarter of the time, on a seed of their own), and are
annealed to the end of the minutes. Their held-out loss is taken on our held-out rows and masks.
Seconds are those of training steps, without evaluation.

A run that has ended is not repeated: the same command continues. FOLDER/summary.json has the
curves; the models (FOLDER/theirs-seedN, FOLDER/ours-seedN) can be given to `tupelo finetune run`.
Needs `pip install -e '.[benchmarks]'`, and a machine that does nothing else. Two processes with
OMP_NUM_THREADS=1 and `--sides theirs` and `--sides ours` take half of the time, a core each; the
same command without `--sides` then prints the summary.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from data_prep.masking import IGNORED
from data_prep.shards.format import ShardSet
from pretrain.compare.run_files import Evaluation, read_checked_lines
from pretrain.config.ds_config import compute_type, read_ds_config
from pretrain.config.recipe import load_settings
from pretrain.config.settings import RunSettings
from pretrain.data.batches import HeldOutBatches, Place
from pretrain.data.shards import open_data, shards_folder

RATES = [5e-4, 1e-3, 2e-3, 4e-3]
TRIAL_SHARE = 0.25
SPEED_STEPS, SPEED_WARM_UP = 24, 8
EVALUATIONS = 20
SUMMARY, RESULT, PRECISION = "summary.json", "against.json", "theirs_in.txt"
SIDES = ("theirs", "ours")

Curve = list[list[float]]  # seconds of training, held-out loss in nats


class Rows(Dataset[dict[str, Any]]):
    """The training rows of shards, as the collator of transformers takes them.

    They are held in memory, so that reading single rows from a disk does not slow theirs down.
    """

    def __init__(self, shards: ShardSet) -> None:
        split = shards.split("train")
        self._ids = split.rows(np.arange(split.num_rows))

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return the ids of a row; all of its tokens are there, rows have no padding."""
        return {"input_ids": self._ids[index].tolist()}


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
        self.curve.append([self._seconds, loss])
        print(f"step {state.global_step:,}, {self._seconds:.0f} s: held-out loss {loss:.4f}")

    def loss_of(self, model: BertForMaskedLM) -> float:
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


def main() -> None:
    """Train what is left to do, and print the summary."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("recipe")
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--rates", type=float, nargs="+", default=RATES, help="peaks to try")
    options.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES, help="default: both")
    options.add_argument("--to", type=Path, required=True, help="a folder; an earlier one goes on")
    arguments, words = options.parse_known_args()
    comparison = Comparison(arguments, words)
    found = {side: comparison.train(side) for side in arguments.sides}
    if found.keys() == set(SIDES):
        summary = {
            "command": sys.argv[1:],
            "rows": comparison.shards.manifest.source,
            "threads": sorted(comparison.threads),
            "theirs_in": str(comparison.precision()),
            "trials": {side: trials for side, (trials, _) in found.items()},
            "runs": {side: runs for side, (_, runs) in found.items()},
        }
        (arguments.to / SUMMARY).write_text(json.dumps(summary, indent=1))
        print_summary(summary)


class Comparison:
    """The runs of both sides in one folder.

    Attributes:
        shards: that both read.
        threads: of the runs that were looked at.
    """

    def __init__(self, arguments: argparse.Namespace, words: Sequence[str]) -> None:
        self._arguments = arguments
        self._settings = load_settings(arguments.recipe, words)
        self.shards = open_data(self._settings)
        self._words = [*words, "--data.shards", str(shards_folder(self._settings))]
        self.threads: set[int] = set()

    def train(self, side: str) -> tuple[dict[str, float], dict[int, Curve]]:
        """Return the ends of the trials of a side by peak rate, and its curves by seed."""
        given = self._arguments
        trial_seed, short = max(given.seeds) + 1, TRIAL_SHARE * given.minutes
        ends = {
            rate: self._run(side, rate, trial_seed, short, f"trials/{side}-{rate:g}")[-1][1]
            for rate in given.rates
        }
        best = min(ends, key=lambda rate: ends[rate])
        runs = {
            seed: self._run(side, best, seed, given.minutes, f"{side}-seed{seed}")
            for seed in given.seeds
        }
        return {f"{rate:g}": end for rate, end in ends.items()}, runs

    def precision(self) -> torch.dtype:
        """Return the precision of their runs, measured before the first of them."""
        file = self._arguments.to / PRECISION
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            dtype = fastest_precision(self._settings, self.shards, self._arguments.to)
            file.write_text(str(dtype).removeprefix("torch."))
        found: torch.dtype = getattr(torch, file.read_text())
        return found

    def _run(self, side: str, rate: float, seed: int, minutes: float, name: str) -> Curve:
        folder = self._arguments.to / name
        if not (folder / RESULT).is_file():
            if side == "ours":
                words = [*self._words, "--seed", str(seed)]
                curve = our_run(self._arguments.recipe, words, rate, minutes, folder)
            else:
                seeded = self._settings.model_copy(update={"seed": seed})
                curve = their_run(seeded, self.shards, rate, minutes, folder, self.precision())
            result = {"threads": torch.get_num_threads(), "curve": curve}
            (folder / RESULT).write_text(json.dumps(result))
        found = json.loads((folder / RESULT).read_text())
        self.threads.add(found["threads"])
        ended: Curve = found["curve"]
        return ended


def their_run(
    settings: RunSettings,
    shards: ShardSet,
    rate: float,
    minutes: float,
    folder: Path,
    dtype: torch.dtype,
) -> Curve:
    """Train BertForMaskedLM by transformers' Trainer; the model stays in `folder`.

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
    model, optimizer = settings.model, settings.optimizer
    torch.manual_seed(settings.seed)
    bert = BertForMaskedLM(
        BertConfig(
            vocab_size=model.vocabulary_size,
            hidden_size=model.width,
            num_hidden_layers=model.num_layers,
            num_attention_heads=model.num_heads,
            intermediate_size=model.feedforward_width,
            max_position_embeddings=model.max_sequence_length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="sdpa",
        )
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(shards.folder / "tokenizer.json"),
        mask_token="[MASK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
    )
    return Trainer(
        model=bert,
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
            use_cpu=not torch.cuda.is_available(),
            seed=settings.seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
        ),
        train_dataset=Rows(shards),
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
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ours = compute_type(read_ds_config("auto", device))
    return min(
        {torch.float32, ours},
        key=lambda dtype: seconds_per_step(settings, shards, folder / "speed", dtype),
    )


def our_run(recipe: str, words: Sequence[str], rate: float, minutes: float, folder: Path) -> Curve:
    """Train with `tupelo train` for the same time; the run folder is `folder`."""
    own = ["--learning_rate.peak", str(rate), "--hours", str(minutes / 60)]
    command = [sys.executable, "-m", "tupelo", "train", recipe, *words, *own]
    shutil.rmtree(folder, ignore_errors=True)  # begun and stopped: it starts anew, as theirs does
    subprocess.run([*command, "--run-folder", str(folder)], check=True)
    rows = read_checked_lines(folder / "evals.jsonl", Evaluation)
    return [[row["training_seconds"], row["loss"]] for row in rows]


def reached(curve: Curve, loss: float) -> float | None:
    """Return the seconds after which a curve fell to a loss, interpolated; None: it did not."""
    for (before, high), (after, low) in zip(curve, curve[1:], strict=False):
        if low <= loss < high:
            return before + (high - loss) / (high - low) * (after - before)
    return curve[0][0] if curve[0][1] <= loss else None


def print_summary(summary: dict[str, Any]) -> None:
    """Print a row for each seed: both ends, and how much sooner ours was there."""
    print("| seed | theirs at the end | ours at the end | ours there after | times sooner |")
    print("| --- | --- | --- | --- | --- |")
    ratios = []
    for seed, theirs in summary["runs"]["theirs"].items():
        ours = summary["runs"]["ours"][seed]
        seconds, end = theirs[-1]
        there = reached(ours, end)
        ratio = None if there is None else seconds / there
        ratios.append(ratio or 0.0)
        print(
            f"| {seed} | {end:.3f} after {seconds:.0f} s | {ours[-1][1]:.3f} | "
            f"{'never' if there is None else f'{there:.0f} s'} | "
            f"{'-' if ratio is None else f'{ratio:.1f}'} |"
        )
    print(f"\nmedian: {statistics.median(ratios):.1f} times sooner; trials: {summary['trials']}")


if __name__ == "__main__":
    main()
