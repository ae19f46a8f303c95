"""Takes and measures optimizer steps of a recipe on this machine.

The steps are those of training: same engine, same kind of batches, drop masks of the same
distribution. Only the learning rate is 0, which costs the same and cannot diverge.
"""

import time
from typing import Any

from pretrain.config.batch import micro_sequences
from pretrain.config.ds_config import compute_type
from pretrain.config.settings import RunSettings
from pretrain.data.batches import Place, TrainingBatches, batches_from
from pretrain.data.shards import existing_shards
from pretrain.distributed.hardware import peak_flops, peak_memory_bytes
from pretrain.distributed.ranks import Ranks, on_first_rank
from pretrain.engine.launch import build_engine, check_machine, checked_ds_config
from pretrain.engine.micro_batches import RandomBatches
from pretrain.schedules.layer_drop import at_constant_theta
from pretrain.schedules.step_plan import thetas_of_run
from pretrain.train.recording.progress import Progress

# Not counted: the first step compiles and allocates, the second may once more, and a processor
# that was idle is fast for some seconds.
WARM_UP_STEPS, WARM_UP_SHARE = 2, 0.1


class MeasuredSteps:
    """Optimizer steps of a recipe at its mean keep ratio; every rank must take the same ones."""

    def __init__(self, settings: RunSettings, ranks: Ranks) -> None:
        """Build the engine, whose weights stay as they are.

        Raises:
            UserError: the run cannot be executed here, or its shards are damaged.
        """
        ds_config = on_first_rank(ranks, lambda: checked_ds_config(settings, ranks))
        on_first_rank(ranks, lambda: check_machine(settings, ds_config, ranks.device))
        self.rate = peak_flops(ranks.device, compute_type(ds_config))
        shards = on_first_rank(ranks, lambda: existing_shards(settings))
        self.source = "random ids" if shards is None else f"sequences of {shards.folder}"
        self.ranks, self.engine = ranks, build_engine(settings, ds_config, ranks)
        executed = self.engine.micro_batches.of(settings)
        place = Place(micro_sequences(executed, ranks.world_size), ranks.rank, ranks.world_size)
        self._batches = batches_from(
            RandomBatches(executed, place.micro_sequences)
            if shards is None
            else TrainingBatches(shards, executed, place),
            0,
            None,
            pin_memory=ranks.device == "cuda",
        )
        # The number of blocks that run is linear in theta: at its mean a step takes the mean time.
        thetas = thetas_of_run(executed)
        mean = sum(theta * count for theta, count in thetas.items()) / thetas.total()
        drop = at_constant_theta(executed.layer_drop, mean)
        rate = executed.learning_rate.model_copy(update={"peak": 0.0})
        steady = {"hours": None, "layer_drop": drop, "learning_rate": rate}  # without an end
        self.progress = Progress(executed.model_copy(update=steady), ranks.world_size)

    def take_one(self) -> None:
        """Take the next step, without waiting for the device."""
        plan = self.progress.next_plan()
        result = self.engine.train_step(plan.micro_batches(self._batches), plan.learning_rate)
        self.progress.add_step(plan, result)

    def metrics(self, count: int) -> dict[str, Any]:
        """Take `count` steps and return their metrics, as training logs them.

        In between the device does not wait for the host. The seconds are those of the first rank,
        on all ranks.
        """
        begin = time.perf_counter()
        for _ in range(count):
            self.take_one()
        self.engine.synchronize()
        seconds = on_first_rank(self.ranks, lambda: time.perf_counter() - begin)
        progress = self.progress
        progress.add_seconds(seconds)
        progress.fetch_losses(self.engine.mean_over_ranks)
        memory = peak_memory_bytes(self.ranks.device)
        return progress.take_metrics(progress.schedule.plan(progress.step), self.rate, memory)

    def metrics_of_seconds(self, seconds: float) -> tuple[int, dict[str, Any]]:
        """Take steps for about so long, after a warm-up; return their number and metrics."""
        counters = self.progress.counters
        while counters.step < WARM_UP_STEPS or counters.training_seconds < WARM_UP_SHARE * seconds:
            latest = self.metrics(1)
        count = round(seconds * latest["tokens_per_second"] / self.progress.tokens_per_step) or 1
        return count, self.metrics(count)
