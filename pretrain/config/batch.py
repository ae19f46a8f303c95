"""The division of an optimizer step's sequences among ranks and passes."""

from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings


def micro_sequences(settings: RunSettings, world_size: int) -> int:
    """Return the sequences per rank and pass; of "auto", the most that there may be.

    Raises:
        ConfigError: the global batch does not divide, or not into the draws of layer drop.
    """
    batch, drop = settings.batch, settings.layer_drop
    draws = 1 if drop.schedule == "none" else drop.draws or 1
    if batch.global_sequences % world_size:
        below = batch.global_sequences // world_size * world_size
        near = f"{below} or {below + world_size}" if below else str(world_size)
        raise ConfigError(
            f"batch.global_sequences={batch.global_sequences} does not divide by {world_size} "
            f"ranks; start others, or take {near}"
        )
    share = batch.global_sequences // world_size
    if share % draws:
        raise ConfigError(
            f"layer_drop.draw_per={draws} does not divide the {share} sequences of a rank "
            f"(batch.global_sequences={batch.global_sequences}, {world_size} ranks); take a "
            "number that does"
        )
    if batch.micro_sequences == "auto":
        return share // draws
    per_pass = batch.micro_sequences * world_size
    if batch.global_sequences % per_pass:
        raise ConfigError(
            f"batch.global_sequences={batch.global_sequences} is not a multiple of "
            f"batch.micro_sequences={batch.micro_sequences} x {world_size} ranks = {per_pass}; "
            "take batch.micro_sequences=auto"
        )
    if share // draws % batch.micro_sequences:
        raise ConfigError(
            f"batch.micro_sequences={batch.micro_sequences} does not divide the {share // draws} "
            f"sequences of a rank that share one of the layer_drop.draw_per={draws}; take auto"
        )
    return batch.micro_sequences


def with_micro_sequences(settings: RunSettings, number: int) -> RunSettings:
    """Return settings with so many sequences per rank and pass."""
    batch = settings.batch.model_copy(update={"micro_sequences": number})
    return settings.model_copy(update={"batch": batch})


def micro_batches_per_step(settings: RunSettings, world_size: int) -> int:
    """Return the micro-batches of a rank in an optimizer step; raises as `micro_sequences` does."""
    return settings.batch.global_sequences // (micro_sequences(settings, world_size) * world_size)
