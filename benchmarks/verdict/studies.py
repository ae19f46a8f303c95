"""Records of a study: what its tables and figures need of each run, in one small file.

`results/NAME.json`, or one in a folder there, holds a study: arms, each with seeds, and the trials
that tuned them. Settings that all its runs share are written once.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from data_prep.files.atomic import save_text
from data_prep.files.redaction import without_folders
from pretrain.compare.plateau import PLATEAU_MARGIN
from pretrain.compare.runs import Run, place_of_loss

TRIALS = "trials"  # the folder of a sweep's trials
DIGITS = 5  # of a loss in nats, far below the noise of a seed

BATCH = ("batch.global_sequences", "data.sequence_length")

# Of the place of a run, not of what was trained.
LEFT_OUT = ("name", "seed", "loggers", "log_project", "data.shards", "data.corpus")


@dataclass(frozen=True)
class StudyRun:
    """A finished run.

    Attributes:
        arm: its name in the sweep.
        seed: of weights and of the order of samples.
        is_trial: whether it served to tune its arm; such runs are not compared.
        settings: those that not all runs of the study share, flat.
        flops: of all its steps, as counted while they ran; 0: they were not counted.
        curve: (step, held-out loss in nats) of each evaluation; the last is infinite where an
            anomaly stopped the run.
        commit: of the code.
        scores: of other measures, by name, in percent.
        seconds: of training until each evaluation; comparable where arms ran side by side.
    """

    arm: str
    seed: int
    is_trial: bool
    settings: Mapping[str, Any]
    flops: float
    curve: tuple[tuple[int, float], ...]
    commit: str
    scores: Mapping[str, float] = field(default_factory=dict)
    seconds: tuple[float, ...] = ()

    @property
    def steps(self) -> int:
        """Return the number of optimizer steps."""
        return self.curve[-1][0]

    @property
    def loss(self) -> float:
        """Return the held-out loss at the end in nats; infinite: it diverged."""
        loss = self.curve[-1][1]
        return loss if math.isfinite(loss) else math.inf

    def reached(self, loss: float) -> float | None:
        """Return the step at which the held-out loss first fell to `loss`; None: never.

        Interpolated between two evaluations, as `tupelo compare` does.
        """
        return place_of_loss(self.curve, loss)

    def seconds_to(self, loss: float) -> float | None:
        """Return the seconds of training after which the loss first fell to `loss`; None: never."""
        losses = (found for _, found in self.curve)
        return place_of_loss(zip(self.seconds, losses, strict=True), loss)


@dataclass(frozen=True)
class Study:
    """The runs of a sweep.

    Attributes:
        name: of the study, and of its file.
        source: the text, as the runs recorded it.
        held_out: the fingerprint of the held-out words.
        device: processors or GPUs.
        precision: in which our runs multiplied matrices.
        versions: of packages.
        entropy: of the word frequencies on the held-out words, in nats.
        shared: settings that all runs have in common, flat.
        runs: reported runs and trials.
    """

    name: str
    source: str
    held_out: str
    device: tuple[str, ...]
    precision: tuple[str, ...]
    versions: Mapping[str, str]
    entropy: float
    shared: Mapping[str, Any]
    runs: tuple[StudyRun, ...]

    @property
    def arms(self) -> list[str]:
        """Return the names of the arms that have reported runs, the baseline first."""
        return list(dict.fromkeys(run.arm for run in self.runs if not run.is_trial))

    @property
    def plateau_end(self) -> float:
        """Return the loss in nats at which a run has left the plateau of word frequencies."""
        return self.entropy - PLATEAU_MARGIN

    @property
    def tokens_per_step(self) -> int:
        """Return the number of tokens of an optimizer step.

        Raises:
            SystemExit: it is not the same for all runs.
        """
        if not self.shared.keys() >= {*BATCH}:
            raise SystemExit(f"the runs of {self.name} have batches of different size")
        return math.prod(self.shared[name] for name in BATCH)

    def of_arm(self, arm: str) -> dict[int, StudyRun]:
        """Return the reported runs of an arm by seed.

        Raises:
            SystemExit: there is no such arm.
        """
        found = {run.seed: run for run in self.runs if run.arm == arm and not run.is_trial}
        if not found:
            raise SystemExit(f"{self.name} has no runs of {arm}; its arms: {', '.join(self.arms)}")
        return found

    def trials_of(self, arm: str) -> list[StudyRun]:
        """Return the trials of an arm."""
        return [run for run in self.runs if run.arm == arm and run.is_trial]


def condense(
    name: str, runs: Sequence[Run], scores: Mapping[str, Mapping[str, float]] | None = None
) -> Study:
    """Return the study of finished runs.

    Args:
        name: of the study.
        runs: reported runs, and trials in a folder of their own.
        scores: of other measures in percent, by the name of a run's folder and by measure.

    Raises:
        SystemExit: they predicted different words.
    """
    launches = [launch for run in runs for launch in run.launches]
    if len({launch["held_out"] for launch in launches}) > 1:
        raise SystemExit(f"the runs of {name} were evaluated on different words")
    settings = [
        {key: value for key, value in run.settings.items() if key not in LEFT_OUT} for run in runs
    ]
    shared = _common(settings)
    return Study(
        name,
        without_folders(launches[0]["source"]),
        launches[0]["held_out"],
        tuple(dict.fromkeys(launch["device"] for launch in launches)),
        tuple(dict.fromkeys(launch["precision"] for launch in launches)),
        launches[0]["versions"],
        launches[0]["frequency_entropy"],
        shared,
        tuple(
            _condensed(run, _beyond(own, shared), (scores or {}).get(run.folder.name, {}))
            for run, own in zip(runs, settings, strict=True)
        ),
    )


def _condensed(run: Run, settings: Mapping[str, Any], scores: Mapping[str, float]) -> StudyRun:
    losses = [*(row["loss"] for row in run.evaluations[:-1]), run.final_loss]
    return StudyRun(
        run.settings["name"],
        run.settings["seed"],
        run.folder.parent.name == TRIALS,
        settings,
        run.evaluations[-1]["flops"],
        tuple(
            (row["step"], round(loss, DIGITS))
            for row, loss in zip(run.evaluations, losses, strict=True)
        ),
        run.launches[-1]["commit"],
        scores,
        tuple(round(row["training_seconds"], 1) for row in run.evaluations),
    )


def _common(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all of several settings hold alike."""
    return {
        key: value
        for key, value in settings[0].items()
        if all(key in other and other[key] == value for other in settings)
    }


def _beyond(settings: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in shared}


def join(studies: Sequence[Study]) -> Study:
    """Return the runs of several studies as one: arms of the first come first.

    Raises:
        SystemExit: they predicted different words, or runs of an arm differ in more than the seed.
    """
    first, *others = studies
    name = "+".join(study.name for study in studies)
    if any(study.held_out != first.held_out for study in others):
        raise SystemExit(f"the runs of {name} were evaluated on different words")
    shared = _common([study.shared for study in studies])
    runs = [
        replace(run, settings={**_beyond(study.shared, shared), **run.settings})
        for study in studies
        for run in study.runs
    ]
    _refuse_unequal_arms(name, [run for run in runs if not run.is_trial])
    return replace(
        first,
        name=name,
        device=tuple(dict.fromkeys(one for study in studies for one in study.device)),
        precision=tuple(dict.fromkeys(one for study in studies for one in study.precision)),
        shared=shared,
        runs=tuple(runs),
    )


def _refuse_unequal_arms(name: str, runs: Sequence[StudyRun]) -> None:
    """Refuse two runs of an arm of the same seed or with other settings (of those both know)."""
    first_of: dict[str, StudyRun] = {}
    seen: set[tuple[str, int]] = set()
    for run in runs:
        if (run.arm, run.seed) in seen:
            raise SystemExit(f"{name} has two runs of {run.arm} with seed {run.seed}")
        seen.add((run.arm, run.seed))
        first = first_of.setdefault(run.arm, run).settings
        if any(run.settings[key] != first[key] for key in run.settings.keys() & first.keys()):
            raise SystemExit(f"the runs of {run.arm} in {name} have different settings")


def write_study(study: Study, file: Path) -> None:
    """Write a study, a line for each run, so that differences of versions are readable."""
    head = {key: value for key, value in asdict(study).items() if key != "runs"}
    lines = [json.dumps(asdict(run), separators=(",", ":")) for run in study.runs]
    text = json.dumps(head, indent=1)[:-2] + ',\n "runs": [\n' + ",\n".join(lines) + "\n]}\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    save_text(file, text)


def read_study(file: Path) -> Study:
    """Read what `write_study` wrote."""
    tree = json.loads(file.read_text(encoding="utf-8"))
    runs = [
        StudyRun(
            **{
                **run,
                "curve": tuple((step, loss) for step, loss in run["curve"]),
                "seconds": tuple(run.get("seconds", ())),
            }
        )
        for run in tree.pop("runs")
    ]
    several = {name: tuple(tree[name]) for name in ("device", "precision")}
    return Study(**{**tree, **several, "runs": tuple(runs)})
