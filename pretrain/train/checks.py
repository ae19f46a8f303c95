"""All that is checked before work: folder, settings, machine, text, tokenizer, initial weights.

A start raises the first obstacle before shards are built; a dry run reports all of them.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from data_prep.files.errors import UserError
from pretrain.checkpoint.resume import finished_already, zero_stage_before
from pretrain.config.errors import ConfigError
from pretrain.config.settings import RunSettings
from pretrain.convert.initial_weights import check_before_build, fitting_weights
from pretrain.data.shards import check_text, existing_shards
from pretrain.distributed.described_gpus import described_gpus
from pretrain.distributed.ranks import Ranks
from pretrain.distributed.unusable_gpus import refuse_unusable_gpus, sees_gpu
from pretrain.engine.launch import check_machine, checked_settings
from pretrain.train.request import RunRequest

Subject = Literal["folder", "machine", "data"]


class CheckedRun(NamedTuple):
    """A run that may be started here."""

    settings: RunSettings
    ds_config: dict[str, Any]  # as DeepSpeed gets it
    finished: str | None  # what to say if there is nothing left to train


def check_before_work(request: RunRequest, ranks: Ranks) -> CheckedRun:
    """Check all that a run needs before anything is built or loaded.

    Raises:
        UserError: the run cannot start, or resume, here.
    """
    request.check_folder()
    stage_before = zero_stage_before(request.folder) if request.beginning == "resume" else None
    settings, ds_config = checked_settings(request.settings, ranks, stage_before=stage_before)
    request._replace(settings=settings).check_settings()
    finished = None
    if request.beginning != "start":
        finished = finished_already(request.folder, settings, lengthen=request.lengthen)
    if finished is None:
        is_new = request.beginning == "start"
        for check in _checks(settings, ds_config, ranks, is_new=is_new).values():
            check()
    return CheckedRun(settings, ds_config, finished)


def check_run(settings: RunSettings, ranks: Ranks) -> None:
    """Check all but the folder of a new run.

    Raises:
        UserError: the run cannot start here.
    """
    settings, ds_config = checked_settings(settings, ranks)
    for check in _checks(settings, ds_config, ranks, is_new=True).values():
        check()


def ranks_here(count: int, on: str | None = None) -> Ranks:
    """Return the ranks that a run of `count` processes on this machine would have.

    Args:
        count: of processes.
        on: GPUs that the run would have instead, as `described_gpus` reads them.

    Raises:
        ConfigError: there can be no such number of them, or they are not known.
    """
    if on is not None:
        number, gpu = described_gpus(on)
        return Ranks(0, number, "cuda", gpu)
    if count < 1:
        raise ConfigError(f"--ranks {count}: give the number of processes, such as 2")
    return Ranks(0, count, "cuda" if sees_gpu() else "cpu")


def check_data(settings: RunSettings, *, is_new: bool = True) -> None:
    """Check the shards, or that they can be built, and the weights that a new run starts from.

    Raises:
        UserError: text, shards, tokenizer or weights are missing, damaged, or do not fit.
    """
    shards = existing_shards(settings)
    if shards is None:
        check_text(settings)
        check_before_build(settings)
    elif is_new:
        fitting_weights(settings, shards)


def obstacles(
    request: RunRequest, settings: RunSettings, ds_config: dict[str, Any], ranks: Ranks
) -> dict[Subject, str]:
    """Return why a run of valid settings cannot start, or resume, here; empty: it can.

    Args:
        request: what was asked for.
        settings: from `checked_settings`, as `ds_config`.
        ds_config: of the run.
        ranks: that would execute it.
    """

    def check_folder() -> None:
        request.check_folder()
        request._replace(settings=settings).check_settings()

    is_new = request.beginning == "start"
    checks = _checks(settings, ds_config, ranks, is_new=is_new)
    found: dict[Subject, str] = {}
    every: dict[Subject, Callable[[], None]] = {"folder": check_folder, **checks}
    for subject, check in every.items():
        try:
            check()
        except UserError as error:
            found[subject] = str(error)
    return found


def _checks(
    settings: RunSettings, ds_config: dict[str, Any], ranks: Ranks, *, is_new: bool
) -> dict[Subject, Callable[[], None]]:
    """Return the checks of all but the folder, in the order in which a start makes them."""

    def check_this_machine() -> None:
        if ranks.gpu is not None:  # it need not be able to
            return
        refuse_unusable_gpus()
        check_machine(settings, ds_config, ranks.device)

    return {
        "machine": check_this_machine,
        "data": lambda: check_data(settings, is_new=is_new),
    }
