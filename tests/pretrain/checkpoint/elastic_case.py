"""Restores a checkpoint at each ZeRO stage and saves it again; run it under torchrun.

elastic_case.py FOLDER CHECKPOINT CONFIGURATION ...
"""

import json
import sys
from pathlib import Path

from pretrain.checkpoint.format import Checkpoint
from pretrain.distributed.ranks import start_ranks, stop_ranks
from tests.pretrain.engine import training_case as case

SETTINGS = (
    *("--batch.global_sequences", "12", "--batch.micro_sequences", "2"),
    *("--model.positions", "tupe-r"),
    *("--optimizer.position_rate", "4", "--optimizer.relative_rate", "16"),
)


def hyperparameters(engine):
    """Return learning rate and its factor, betas, epsilon and weight decay of every group."""
    names = ("lr", "learning_rate_factor", "betas", "eps", "weight_decay")
    return [[group.get(name, 1.0) for name in names] for group in engine._optimizer.param_groups]


def main(folder, source, *names):
    ranks, settings = start_ranks(), case.case_settings(*SETTINGS)
    found = {}
    for name in names:
        engine = case.build_engine(settings, ranks, name)
        fresh = hyperparameters(engine)
        engine.restore(Checkpoint(Path(source)))
        assert hyperparameters(engine) == fresh
        (Path(folder) / name).mkdir(exist_ok=True)
        case.saved(engine, Path(folder) / name, 3)
        losses, norms = case.train_steps(engine, settings, range(3, case.STEPS), places=6)
        found[name] = {"losses": losses, "norms": norms, "groups": hyperparameters(engine)}
    if ranks.is_first:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    stop_ranks()


if __name__ == "__main__":
    main(*sys.argv[1:])
