"""All checks, in the order in which they run: a new one is a function and a line here."""

from pretrain.doctor.check import Check
from pretrain.doctor.compilers import compiler
from pretrain.doctor.device import accelerator
from pretrain.doctor.hanging_starts import build_locks, launcher_variables
from pretrain.doctor.memory import gpu_memory, memory, shared_memory
from pretrain.doctor.run import (
    execution_is_planned,
    newest_checkpoint_is_sound,
    rows_are_complete,
    settings_are_valid,
)
from pretrain.doctor.storage import space_for_runs, space_for_shards, write_speed

CHECKS = (
    Check("accelerator", accelerator),
    Check("compiler", compiler),
    Check("build locks", build_locks),
    Check("launcher variables", launcher_variables),
    Check("memory", memory),
    Check("GPU memory", gpu_memory),
    Check("shared memory", shared_memory),
    Check("space for runs", space_for_runs),
    Check("space for shards", space_for_shards),
    Check("write speed", write_speed),
)

# Only for a recipe or a run folder, whose settings are valid.
RUN_CHECKS = (
    Check("settings", settings_are_valid),
    Check("rows", rows_are_complete),
    Check("checkpoint", newest_checkpoint_is_sound),
    Check("execution", execution_is_planned),
)
