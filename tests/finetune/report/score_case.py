"""Folders of fine-tuning results with scores that a test chooses, and their table."""

import json

from finetune.report.entries import shown
from finetune.report.score_table import score_table
from finetune.results.result import TrialResult, save_result
from finetune.results.sweep_results import read_sweep_results
from finetune.tasks.catalog import known_tasks


def scores_of(task, value, mismatched=None):
    """Return scores in which every metric is `value`, or the mismatched set's another."""
    known = known_tasks().get(task)
    splits = known.development if known else ("dev",)
    metrics = known.metrics if known else ("accuracy", "macro_f1")
    values = (value, value if mismatched is None else mismatched)
    return {name: dict.fromkeys(metrics, n) for name, n in zip(splits, values, strict=False)}


def write_result(sweep, task, scores, *, model="m", rate=1e-3, seed=0, **changes):
    """Write one result; `scores` is a number, scores, or how it ended."""
    fields = {"step": None, "pretrained": True, "protocol": "tupe", "epochs": 3, **changes}
    ended = scores if isinstance(scores, str) else "finished"
    found = scores_of(task, scores) if isinstance(scores, float) else scores
    fields = {"model": model, "source": f"/runs/{model}", **fields}
    result = TrialResult(
        **fields,
        task=task,
        learning_rate=rate,
        seed=seed,
        status=ended,
        scores=found if ended == "finished" else {},
    )
    folder = sweep / result.folder
    folder.mkdir(parents=True)
    save_result(folder, result)
    return folder


def write_sweep_record(
    sweep, tasks, rates, seeds, metrics=None, *, model="m", examples="b", weights="a", **protocol
):
    """Write the grid.json of one model, with digests of the examples and the weights."""
    named = {"model": model, "source": f"/runs/{model}", "digest": weights}
    record = {
        "protocol": {"name": "tupe", **protocol},
        "tasks": tasks,
        "learning_rates": rates,
        "seeds": seeds,
        "models": [{**named, "step": None, "pretrained": True}],
        "data": dict.fromkeys(tasks, examples),
        "metrics": metrics or {},
    }
    sweep.mkdir(exist_ok=True)
    (sweep / "grid.json").write_text(json.dumps(record))


def table_of(*folders, average="glue", step="newest"):
    return score_table(read_sweep_results(folders), average, step)


def texts(table):
    """Return the lines of the cells by row and column."""
    return {
        row["model"]: {name: cell.split("\n") for name, cell in row.items()}
        for row in shown(table).rows
    }


def best_of(table, column):
    """Return the rows whose score is marked."""
    marked = shown(table)
    return [marked.rows[number]["model"] for number, name in marked.best if name == column]
