"""Checks of a recipe or a run folder: settings, rows, newest checkpoint, execution."""

from data_prep.files.errors import UserError
from data_prep.files.program import shell_command
from pretrain.checkpoint.folders import checkpoints_of
from pretrain.checkpoint.format import Checkpoint, CheckpointError
from pretrain.config.batch import micro_batches_per_step
from pretrain.data.shards import existing_shards, shards_folder
from pretrain.distributed.ranks import Ranks
from pretrain.doctor.check import CheckContext, CheckResult, problem_of
from pretrain.engine.execution import plan_execution, this_machine
from pretrain.engine.zero_choice import stage_of_run
from pretrain.model.cost import parameters_by_group
from pretrain.train.checks import check_data


def settings_are_valid(context: CheckContext) -> CheckResult:
    """Describe the run; settings that contradict each other were refused before."""
    settings = context.settings
    assert settings is not None
    parameters = parameters_by_group(settings.model, settings.objective, settings.electra)["total"]
    passes = "a number of micro-batches that is chosen at the start"
    if settings.batch.micro_sequences != "auto":
        passes = f"{micro_batches_per_step(settings, context.ranks)} micro-batch(es)"
    return CheckResult(
        "ok",
        f"{settings.name}: {parameters / 1e6:.1f} M parameters, {settings.model.positions}, "
        f"{settings.batch.global_sequences} rows a step in {passes} on {context.ranks} rank(s)",
    )


def rows_are_complete(context: CheckContext) -> CheckResult:
    """Open the shards: manifest, tokenizer, and the size and header of every file."""
    settings = context.settings
    assert settings is not None
    try:
        check_data(settings)
        shards = existing_shards(settings)
    except UserError as error:
        return problem_of(error)
    folder = shards_folder(settings)
    if shards is None:
        return CheckResult(
            "warning",
            f"not built yet ({folder})",
            f"{shell_command('prepare', context.recipe or '')}, with the same settings",
        )
    rows = {name: f"{split.rows:,} {name}" for name, split in shards.manifest.splits.items()}
    return CheckResult(
        "ok",
        f"{' and '.join(rows.values())} in {folder}, every file of the recorded size "
        f"({shell_command('data', 'verify', folder)} compares checksums)",
    )


def newest_checkpoint_is_sound(context: CheckContext) -> CheckResult:
    """Compare the newest checkpoint of the run folder with its sha256."""
    run = context.run_folder
    found = checkpoints_of(run)
    if not found:
        return CheckResult("ok", f"none in {run} yet")
    try:
        Checkpoint(found[-1]).verify()
    except CheckpointError as error:
        has_older = len(found) > 1
        return CheckResult(
            "warning" if has_older else "problem",
            str(error),
            f"--resume continues from {found[-2].name} if that one is sound"
            if has_older
            else "there is no older one: restore it from a copy, or start a new run",
        )
    return CheckResult("ok", f"{found[-1]} matches its sha256")


def execution_is_planned(context: CheckContext) -> CheckResult:
    """Report the attention, whether blocks are compiled, the precision and the ZeRO stage."""
    settings, ds_config = context.settings, context.ds_config
    assert settings is not None and ds_config is not None
    machine = this_machine(dict(ds_config), context.accelerators.device)
    execution = plan_execution(settings, machine)
    ranks = Ranks(0, context.ranks, context.accelerators.device)
    return CheckResult(
        "ok",
        f"{execution.describe()}; {str(machine.dtype).removeprefix('torch.')}, "
        f"{stage_of_run(settings, ds_config, ranks).describe()}",
    )
