"""Every check, in the order in which they are made: a new one is a function and a line here."""

from pretrain.doctor.builds import build_locks, compilers, operations, triton_cache
from pretrain.doctor.device import accelerator, precision
from pretrain.doctor.finding import Check
from pretrain.doctor.launch import (
    communication,
    gpu_communication,
    launcher_variables,
    launchers,
    ssh,
)
from pretrain.doctor.machine import (
    gpu_memory,
    memory,
    open_files,
    processors,
    shared_memory,
)
from pretrain.doctor.run import (
    execution_is_planned,
    newest_checkpoint_is_sound,
    rows_are_there,
    settings_are_valid,
)
from pretrain.doctor.storage import (
    clocks_agree,
    room_for_runs,
    room_for_shards,
    write_speed,
)

CHECKS = (
    Check("accelerator", accelerator),
    Check("precision", precision),
    Check("compilers", compilers),
    Check("operations", operations),
    Check("build locks", build_locks),
    Check("Triton", triton_cache),
    Check("launchers", launchers),
    Check("their variables", launcher_variables),
    Check("ssh", ssh),
    Check("cores and threads", processors),
    Check("memory", memory),
    Check("GPU memory", gpu_memory),
    Check("shared memory", shared_memory),
    Check("open files", open_files),
    Check("room for runs", room_for_runs),
    Check("room for shards", room_for_shards),
    Check("write speed", write_speed),
    Check("clock", clocks_agree),
    Check("communication", communication),
    Check("GPU communication", gpu_communication),
)

# Made where a recipe or a run folder is named, and its settings can be read.
RUN_CHECKS = (
    Check("settings", settings_are_valid),
    Check("rows", rows_are_there),
    Check("checkpoint", newest_checkpoint_is_sound),
    Check("execution", execution_is_planned),
)
