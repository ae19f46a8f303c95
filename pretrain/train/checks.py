"""All that is checked before work: folder, settings, machine, text, tokenizer, initial weights.

A start raises the first obstacle before shards are built; a dry run reports all of them.
"""

import re
from collections.abc import Callable
from typing import Any

from data_prep.files.errors import UserError
from data_prep.files.quoting import quoted
from data_prep.text.text_encoder import TextEncoder
from data_prep.tokenizer.describe import read_tokenizer
from pretrain.checkpoint.resume import finished_already
from pretrain.config.ds_config import zero_stage
from pretrain.config.errors import ConfigError, lookup
from pretrain.config.json_objects import read_json_object
from pretrain.config.run_files import DS_CONFIG_FILE, FIX
from pretrain.config.settings import RunSettings
from pretrain.convert.initial_weights import check_before_build, fitting_weights
from pretrain.data.shards import check_text, existing_shards
from pretrain.distributed.hardware import DATASHEETS
from pretrain.distributed.ranks import Ranks
from pretrain.distributed.unusable_gpus import refuse_unusable_gpus, sees_gpu
from pretrain.engine.launch import check_machine, checked_ds_config
from pretrain.train.request import RunRequest


def ds_config_of(request: RunRequest, ranks: Ranks) -> dict[str, Any]:
    """Return the DeepSpeed configuration of a run; "auto" keeps the stage of before.

    Raises:
        ConfigError: it does not go with the settings, or the file of before is damaged.
    """
    file, stage = request.folder / DS_CONFIG_FILE, None
    if request.beginning == "resume" and file.is_file():
        stage = int(zero_stage(read_json_object(file, fix=FIX)))
    return checked_ds_config(request.settings, ranks, stage_before=stage)


def check_before_work(request: RunRequest, ranks: Ranks) -> tuple[dict[str, Any], str | None]:
    """Check all that a run needs before anything is built or loaded.

    Returns:
        The DeepSpeed configuration, and what to say if there is nothing left to train.

    Raises:
        UserError: the run cannot start, or resume, here.
    """
    request.check_folder()
    ds_config, finished = ds_config_of(request, ranks), None
    request.check_settings()
    if request.beginning != "start":
        finished = finished_already(request.folder, request.settings, lengthen=request.lengthen)
    if finished is None:
        is_new = request.beginning == "start"
        check_this_machine(request.settings, ds_config, ranks)
        check_data(request.settings, is_new=is_new)
    return ds_config, finished


def ranks_here(count: int, on: str | None = None) -> Ranks:
    """Return the ranks that a run of `count` processes on this machine would have.

    `on`: on so many GPUs of this name instead, such as "16xA100-SXM4-80GB".

    Raises:
        ConfigError: there can be no such number of them, or they are not known.
    """
    if on is not None:
        found = re.fullmatch(r"([1-9]\d{0,5}) ?x ?(.+)", on)
        if found is None:
            raise ConfigError(
                f"--on {quoted(on)}: give a number of GPUs and their name, such as "
                "16xA100-SXM4-80GB"
            )
        return Ranks(0, int(found[1]), "cuda", lookup(DATASHEETS, found[2], setting="--on"))
    return Ranks(0, count, "cuda" if sees_gpu() else "cpu")


def check_this_machine(settings: RunSettings, ds_config: dict[str, Any], ranks: Ranks) -> None:
    """Check that this machine can execute a run, if it need be able to."""
    if ranks.gpu is None:
        refuse_unusable_gpus()
        check_machine(settings, ds_config, ranks.device)


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
        record = shards.manifest.tokenizer
        TextEncoder(read_tokenizer(shards.tokenizer_path), record).compare()


def obstacles(request: RunRequest, ds_config: dict[str, Any], ranks: Ranks) -> dict[str, str]:
    """Return why a run of valid settings cannot start, or resume, here; empty: it can.

    By what is in the way: "folder", "machine" or "data".
    """

    def check_folder() -> None:
        request.check_folder()
        request.check_settings()

    is_new, found = request.beginning == "start", {}
    checks: dict[str, Callable[[], None]] = {
        "folder": check_folder,
        "machine": lambda: check_this_machine(request.settings, ds_config, ranks),
        "data": lambda: check_data(request.settings, is_new=is_new),
    }
    for subject, check in checks.items():
        try:
            check()
        except UserError as error:
            found[subject] = str(error)
    return found
