"""Records of the study, one JSON file for each sweep: what tables and figures need of its runs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pretrain.config.run_files import PLATEAU_MARGIN
from pretrain.reports.compare.runs import place_of_loss

FOLDER = Path(__file__).parent / "results"
TIMES = "times"  # in FOLDER: what benchmarks measured, which are no sweeps
BATCH = ("batch.global_sequences", "data.sequence_length")


@dataclass(frozen=True)
class StudyRun:
    """A finished run."""

    arm: str
    seed: int  # of weights and of the order of samples
    is_trial: bool  # whether it served to tune its arm; such runs are not compared
    settings: Mapping[str, Any]  # those that not all runs of the study share, flat
    flops: float  # of all its steps, as counted while they ran; 0: they were not counted
    # (step, held-out loss in nats); the last is infinite where an anomaly stopped the run
    curve: tuple[tuple[int, float], ...]
    commit: str  # of the code
    scores: Mapping[str, float] = field(default_factory=dict)  # other measures, in percent
    seconds: tuple[float, ...] = ()  # of training until each point of the curve

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
        """Return the step, interpolated, at which the loss first fell to `loss`; None: never."""
        return place_of_loss(self.curve, loss)

    def seconds_to(self, loss: float) -> float | None:
        """Return the seconds of training after which the loss first fell to `loss`; None: never."""
        losses = (found for _, found in self.curve)
        return place_of_loss(zip(self.seconds, losses, strict=True), loss)


@dataclass(frozen=True)
class Study:
    """The runs of one sweep, or of several."""

    name: str
    source: str  # the text, as the runs recorded it
    held_out: str  # the fingerprint of the held-out words
    device: tuple[str, ...]
    precision: tuple[str, ...]  # of our products
    versions: Mapping[str, str]
    entropy: float  # of the word frequencies on the held-out words, in nats
    shared: Mapping[str, Any]  # settings that all runs have in common, flat
    runs: tuple[StudyRun, ...]  # reported ones and trials

    @property
    def arms(self) -> list[str]:
        """Return the names of the arms that have reported runs."""
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


def common(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all of several settings hold alike."""
    first, *others = settings
    return {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in others)
    }


def beyond(settings: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not shared."""
    return {key: value for key, value in settings.items() if key not in shared}


def records() -> dict[str, Path]:
    """Return the files of all studies by their names."""
    return {file.stem: file for file in FOLDER.rglob("*.json") if file.parent.name != TIMES}


def join(studies: Sequence[Study]) -> Study:
    """Return the runs of several studies as one: arms of the first come first.

    Raises:
        SystemExit: they predicted different words, or two runs have the same arm and seed, or runs
            of an arm have other settings (of those that both know).
    """
    first, name = studies[0], "+".join(study.name for study in studies)
    if any(study.entropy != first.entropy for study in studies):
        raise SystemExit(f"the runs of {name} were evaluated on different words")
    shared = common([study.shared for study in studies])
    runs = tuple(
        replace(run, settings={**beyond(study.shared, shared), **run.settings})
        for study in studies
        for run in study.runs
    )
    seen: dict[str, dict[int, StudyRun]] = {}
    for run in runs:
        if run.is_trial:
            continue
        of_arm = seen.setdefault(run.arm, {})
        if run.seed in of_arm:
            raise SystemExit(f"{name} has two runs of {run.arm} with seed {run.seed}")
        of_arm[run.seed] = run
        other = next(iter(of_arm.values())).settings
        if any(run.settings[key] != other[key] for key in run.settings.keys() & other.keys()):
            raise SystemExit(f"the runs of {run.arm} in {name} have different settings")
    return replace(first, name=name, shared=shared, runs=runs)


def write_study(study: Study, file: Path) -> None:
    """Write a study, a line for each run, so that differences of versions are readable."""
    head = {key: value for key, value in asdict(study).items() if key != "runs"}
    lines = [json.dumps(asdict(run), separators=(",", ":")) for run in study.runs]
    text = json.dumps(head, indent=1)[:-2] + ',\n "runs": [\n' + ",\n".join(lines) + "\n]}\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def read_study(file: Path) -> Study:
    """Read what `write_study` wrote."""
    tree = json.loads(file.read_text(encoding="utf-8"))
    for run in tree["runs"]:
        run["curve"] = tuple((step, loss) for step, loss in run["curve"])
        run["seconds"] = tuple(run.get("seconds", ()))
    several = {name: tuple(tree[name]) for name in ("device", "precision")}
    return Study(**{**tree, **several, "runs": tuple(StudyRun(**run) for run in tree["runs"])})
