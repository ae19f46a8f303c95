"""The model card of an export: README.md with use, data, settings, losses, fine-tuning scores.

The scores are read from the results that fine-tuning has left in the run folder.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)

from data_prep.files.atomic import save_text
from data_prep.shards.manifest import Manifest, read_manifest
from pretrain.compare.run_files import Evaluation, Launch, Metrics, read_checked_lines
from pretrain.config.errors import ConfigError
from pretrain.config.json_objects import read_json_object
from pretrain.config.recipe import load_settings
from pretrain.config.settings import REPLACED_TOKEN_DETECTION, RunSettings, as_json
from pretrain.convert.exports.card_header import card_header
from pretrain.convert.exports.card_text import (
    Rows,
    card_table,
    layer_drop_phrase,
    render_card,
    without_folders,
)
from pretrain.convert.exports.hf_check import ExportCheck
from pretrain.convert.exports.hf_format import stock_model
from pretrain.convert.pretrained import Pretrained, discriminator_weights
from pretrain.model.positions import POSITION_ENCODINGS
from pretrain.reports.html import COLOURS, as_written, empty_axes
from pretrain.reports.words import amount, counted

CARD_FILE = "README.md"
PLOT_FILE = "loss.png"
FINETUNE_FOLDER = "finetune"  # in the run folder
SWEEP_FILE = "grid.json"  # of fine-tuning
SCORE_HEADERS = ["protocol", "task", "split", "metric", "score", "seeds", "learning rate"]
MOST_ROWS = 12  # of the table of losses; the plot shows all


def write_card(
    folder: Path, pretrained: Pretrained, run: Path, check: ExportCheck, *, place: str
) -> None:
    """Write README.md and the plot of the held-out loss.

    Args:
        folder: of the export.
        pretrained: what was exported.
        run: folder of the run that it comes from.
        check: comparison of the export with the trainer.
        place: of the folder in the examples.
    """
    settings, manifest = load_settings(run), read_manifest(run)
    stock = stock_model(pretrained.model, pretrained.objective)
    text = render_card(
        Path(__file__).with_name("model_card.md.j2"),
        name=settings.name,
        place=place,
        trust=", trust_remote_code=True" if stock is None else "",
        summary=_summary(settings, pretrained),
        sequence_length=pretrained.sequence_length,
        dropout=f"{settings.model.dropout:g}",
        attention_dropout=f"{settings.model.attention_dropout:g}",
        moses=manifest.tokenizer.moses,
        data=card_table(_data_rows(manifest), ["", ""]),
        provenance=card_table(_provenance_rows(run, check), ["", ""]),
        settings=without_folders(as_json(settings)).rstrip(),
        **_measured(folder, pretrained, run, settings),
        **_scored(pretrained, run, manifest, settings.name),
    )
    save_text(folder / CARD_FILE, text)


def _measured(
    folder: Path, pretrained: Pretrained, run: Path, settings: RunSettings
) -> dict[str, str]:
    """Draw the losses until the step of the export, and return what the card says of them."""
    evaluations = _until(pretrained.step, read_checked_lines(run / "evals.jsonl", Evaluation))
    metrics = _until(pretrained.step, read_checked_lines(run / "metrics.jsonl", Metrics))
    if evaluations:
        _draw(evaluations, metrics, settings.name, folder / PLOT_FILE)
    return {
        "training": card_table(_training_rows(settings, pretrained, metrics), ["", ""]),
        "losses": card_table(*_loss_table(evaluations)) if evaluations else "",
        "plot": PLOT_FILE,
    }


def _scored(pretrained: Pretrained, run: Path, manifest: Manifest, name: str) -> dict[str, Any]:
    """Return the scores of fine-tuning, and the header, which holds them too."""
    scores = score_rows(run, pretrained.step, name)
    is_discriminator = pretrained.objective == REPLACED_TOKEN_DETECTION
    return {
        "is_discriminator": is_discriminator,
        "header": card_header(manifest, scores, name=name, is_discriminator=is_discriminator),
        "scores": card_table(scores, SCORE_HEADERS) if scores else "",
    }


def _summary(settings: RunSettings, pretrained: Pretrained) -> str:
    model = settings.model
    weights = discriminator_weights(pretrained.weights)
    parameters = sum(weight.numel() for weight in weights.values())
    kind = "pre-norm" if model.norm == "pre" else "post-norm"
    stock = stock_model(model, pretrained.objective)
    loads_as = f"the stock `{stock.architecture}`" if stock else "a model with its own code"
    trained_as = (
        "the discriminator of an ELECTRA (replaced-token detection; the generator is left out)"
        if pretrained.objective == REPLACED_TOKEN_DETECTION
        else "a masked language model"
    )
    positions = POSITION_ENCODINGS[model.positions]
    return (
        f"An encoder of {model.num_layers} {kind} layers, width {model.width}, {model.num_heads} "
        f"heads and {parameters:,} parameters with {positions.description}, pre-trained by "
        f"Tupelo as {trained_as} for {pretrained.step:,} steps. Its position encoding is from "
        f"{positions.source}. For transformers it is {loads_as}."
    )


def _data_rows(manifest: Manifest) -> Rows:
    rows: list[list[Any]] = [["source", manifest.source], ["licence", manifest.licence]]
    for name, split in manifest.splits.items():
        known = [("documents", split.documents), ("words", split.words), ("tokens", split.tokens)]
        counts = [f"{count:,} {what}" for what, count in known if count is not None]
        rows.append([name, ", ".join([*counts, f"{split.rows:,} sequences"])])
    tokenizer = manifest.tokenizer
    rows.append(["tokenizer", f"{tokenizer.kind}, {tokenizer.vocabulary_size:,} entries"])
    rows.append(["sequence length", manifest.sequence_length])
    rows += [[f"cleaning: {what}", f"{count:,}"] for what, count in manifest.cleaning.items()]
    return rows + [["afterwards", step] for step in manifest.history]


def _training_rows(
    settings: RunSettings, pretrained: Pretrained, metrics: list[dict[str, Any]]
) -> Rows:
    data, rate, drop = settings.data, settings.learning_rate, settings.layer_drop
    length = f"{settings.hours:g} hours" if settings.hours else f"{settings.steps:,} steps"
    rows: list[list[Any]] = [
        ["started from", settings.initial_weights or "new weights"],
        ["planned", length],
        ["this checkpoint", f"{pretrained.step:,} steps"],
        ["sequences in a step", f"{settings.batch.global_sequences:,}"],
        ["masked", f"{data.masked_probability:.0%} of the tokens, drawn as {data.masking}"],
        [
            "learning rate",
            f"{rate.schedule}, peak learning rate {rate.peak:g}, warm-up {rate.warmup_ratio:.0%}",
        ],
        ["weight decay", f"{settings.optimizer.weight_decay:g}"],
        ["layer drop", layer_drop_phrase(drop)],
        ["dropout", f"{settings.model.dropout:g}, attention {settings.model.attention_dropout:g}"],
        ["seed", settings.seed],
    ]
    for last in metrics[-1:]:
        seconds = amount(last["training_seconds"], "training_seconds")
        rows.append(["time", f"{seconds} until step {last['step']:,}"])
        rows.append(["tokens seen", amount(last["tokens"], "tokens")])
        rows.append(["FLOPs", amount(last["flops"], "flops")])
    return rows


def _provenance_rows(run: Path, check: ExportCheck) -> Rows:
    rows = [
        [
            "compared with the trainer",
            f"largest difference {check.largest_difference:.1g} in {check.num_logits:,} logits of "
            f"{check.source}, fp32",
        ]
    ]
    for launch in read_checked_lines(run / "launches.jsonl", Launch)[-1:]:
        versions = ", ".join(f"{name} {number}" for name, number in launch["versions"].items())
        rows.append(["device", f"{launch['device']}, {counted(launch['world_size'], 'rank')}"])
        rows += [["commit of Tupelo", launch["commit"]], ["versions", versions]]
    return rows


def _loss_table(evaluations: list[dict[str, Any]]) -> tuple[Rows, list[str]]:
    last = len(evaluations) - 1
    shown = sorted({round(last * place / (MOST_ROWS - 1)) for place in range(MOST_ROWS)})
    rows = [
        [
            f"{row['step']:,}",
            amount(row["tokens"], "tokens"),
            amount(row["training_seconds"], "training_seconds"),
            f"{row['loss']:.3f}",
        ]
        for row in (evaluations[place] for place in shown)
    ]
    return rows, ["step", "tokens", "training time", "held-out loss"]


def _draw(
    evaluations: list[dict[str, Any]], metrics: list[dict[str, Any]], name: str, file: Path
) -> None:
    figure, axes = empty_axes()
    for rows, label, colour, width in (
        (metrics, "training", "0.6", 0.8),
        (evaluations, "held out", COLOURS[0], 1.8),
    ):
        steps, losses = ([row[key] for row in rows] for key in ("step", "loss"))
        axes.plot(steps, losses, label=label, color=colour, linewidth=width)
    axes.set(xlabel="optimizer steps", ylabel="loss in nats", title=as_written(name))
    axes.legend(frameon=False)
    figure.savefig(file)


def _until(step: int | None, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if step is None or row["step"] <= step]


class _Result(BaseModel):
    """The part of a result.json of fine-tuning that a model card shows."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    model: str
    step: int | None
    pretrained: bool
    task: str
    protocol: str
    learning_rate: float
    status: str
    scores: dict[str, Annotated[dict[str, FiniteFloat], Field(min_length=1)]]

    @model_validator(mode="after")
    def _check_scores(self) -> "_Result":
        if self.status == "finished" and not self.scores:
            raise ValueError("a run that is finished has scores")
        return self

    def rank(self, metric: str | None) -> float:
        """Return the main metric in the mean of the development sets; a diverged seed is worst.

        Args:
            metric: the main one; None, or one that it lacks: the first.
        """
        main = [
            metrics.get(str(metric), next(iter(metrics.values())))
            for metrics in self.scores.values()
        ]
        return statistics.fmean(main) if self.status == "finished" else -math.inf


def score_rows(run: Path, step: int | None, name: str) -> list[list[str]]:
    """Return a row per protocol, task, sweep, split and metric, of this run's model at this step.

    A sweep may hold others. Among runs of one name it calls each by its folder.

    The median over the seeds at the learning rate whose median is best, as TUPE Sec. 4.1 and
    `tupelo finetune table --average tupe` have it; a diverged seed is worse than any score.

    Raises:
        ConfigError: a result is damaged.
    """
    by_task: dict[tuple[str, str, Path], dict[float, list[_Result]]] = defaultdict(dict)
    main: dict[tuple[str, str, Path], str | None] = {}
    own = {name, run.resolve().name}
    for file in sorted((run / FINETUNE_FOLDER).glob("*/**/lr_*/seed_*/result.json")):
        result = _read(file)
        is_own = result.model in own and (result.step, result.pretrained) == (step, True)
        if is_own and result.status != "failed":
            # FINETUNE_FOLDER/SWEEP/TASK/MODEL/lr_3e-05/seed_0/result.json
            asked = (result.protocol, result.task, file.parents[4])
            by_task[asked].setdefault(result.learning_rate, []).append(result)
            main[asked] = _main_metric(file.parents[4], result.task)
    rows = []
    num_sweeps = Counter((protocol, task) for protocol, task, _ in by_task)
    for (protocol, task, sweep), rates in sorted(by_task.items()):
        name = protocol if num_sweeps[protocol, task] == 1 else f"{protocol}, {sweep.name}"
        metric = main[protocol, task, sweep]
        ranks = {rate: statistics.median(r.rank(metric) for r in rates[rate]) for rate in rates}
        best = max(ranks, key=ranks.__getitem__)
        rows += [[name, task, *row, f"{best:g}"] for row in _medians(rates[best])]
    return rows


def _medians(results: Sequence[_Result]) -> Iterator[list[str]]:
    """Yield split, metric, median and the number of seeds that finished."""
    finished = [result for result in results if result.status == "finished"]
    diverged = [-math.inf] * (len(results) - len(finished))
    for split, metrics in finished[0].scores.items() if finished else ():
        for metric in metrics:
            scores = [
                result.scores[split][metric]
                for result in finished
                if metric in result.scores.get(split, {})
            ]
            median = statistics.median(scores + diverged)
            shown = "diverged" if median == -math.inf else f"{100 * median:.1f}"
            yield [split, metric, shown, str(len(finished))]


def _main_metric(sweep: Path, task: str) -> str | None:
    """Return the main metric that a sweep was asked for; None: none was."""
    if not (sweep / SWEEP_FILE).is_file():
        return None
    metrics = read_json_object(sweep / SWEEP_FILE, fix="restore it from a copy").get("metrics")
    metric = metrics.get(task) if isinstance(metrics, dict) else None
    return metric if isinstance(metric, str) else None


def _read(file: Path) -> _Result:
    try:
        return _Result.model_validate_json(file.read_bytes())
    except ValidationError:
        raise ConfigError(f"{file} is damaged; remove it, and repeat that run") from None
