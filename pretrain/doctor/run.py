"""What only a recipe or a run folder tells: its settings, its rows, how it would be executed."""

from data_prep.shards.manifest import ShardError
from pretrain.checkpoint.folders import checkpoints_of
from pretrain.checkpoint.format import Checkpoint, CheckpointError
from pretrain.config.ds_config import micro_batches_per_step
from pretrain.config.errors import ConfigError
from pretrain.data.shards import open_data, shards_folder
from pretrain.doctor.finding import CheckResult, Surroundings
from pretrain.engine.execution import plan_execution, this_machine
from pretrain.model.cost import parameters_by_group


def settings_are_valid(surroundings: Surroundings) -> CheckResult:
    """Describe the run; settings that do not go together have been refused before."""
    settings = surroundings.settings
    assert settings is not None
    parameters = parameters_by_group(settings.model, settings.objective)["total"]
    accumulation = micro_batches_per_step(settings, surroundings.ranks)
    return CheckResult(
        "ok",
        f"{settings.name}: {parameters / 1e6:.1f} M parameters, {settings.model.positions}, "
        f"{settings.batch.global_sequences} rows a step in {accumulation} micro-batch(es) on "
        f"{surroundings.ranks} rank(s)",
    )


def rows_are_there(surroundings: Surroundings) -> CheckResult:
    """Open the shards: manifest, tokenizer, and the size and header of every file."""
    settings = surroundings.settings
    assert settings is not None
    try:
        folder = shards_folder(settings)
        if not folder.is_dir() and settings.data.shards is None:
            return CheckResult(
                "warning",
                f"not built yet ({folder})",
                f"python -m pretrain prepare {surroundings.recipe}, with the same settings",
            )
        shards = open_data(settings)
    except (ConfigError, ShardError) as error:
        found, _, fix = str(error).partition("; ")
        return CheckResult("problem", found, fix)
    rows = {name: f"{split.rows:,} {name}" for name, split in shards.manifest.splits.items()}
    return CheckResult(
        "ok",
        f"{' and '.join(rows.values())} in {folder}, every file of its size (python -m data_prep "
        f"verify {folder} compares checksums)",
    )


def newest_checkpoint_is_sound(surroundings: Surroundings) -> CheckResult:
    """Compare the newest checkpoint of the run folder with its sha256."""
    run = surroundings.run_folder
    found = checkpoints_of(run)
    if not found:
        return CheckResult("ok", f"none in {run} yet")
    try:
        Checkpoint(found[-1]).verify()
    except CheckpointError as error:
        sound = len(found) > 1
        return CheckResult(
            "warning" if sound else "problem",
            str(error),
            f"--resume goes on from {found[-2].name} if that one is sound"
            if sound
            else "there is no older one: bring it back, or start a new run",
        )
    return CheckResult("ok", f"{found[-1]} is what was written")


def execution_is_planned(surroundings: Surroundings) -> CheckResult:
    """Tell which attention is used, whether blocks are compiled, and which DeepSpeed JSON."""
    settings, ds_config = surroundings.settings, surroundings.ds_config
    assert settings is not None and ds_config is not None
    machine = this_machine(dict(ds_config), surroundings.accelerators.device)
    execution = plan_execution(settings, machine)
    return CheckResult(
        "ok",
        f"{execution.describe()}; {str(machine.dtype).removeprefix('torch.')}, ZeRO stage "
        f"{machine.zero_stage}",
    )
