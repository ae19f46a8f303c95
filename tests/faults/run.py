"""One run that is disturbed and resumed, launch after launch, and judged at its end."""

import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from pretrain.profiling import hardware

from .comparison import CLOCK, FETCHED_AHEAD, differences
from .launch import Launch, fork_trainer, launcher, start_command
from .material import Material, Variant
from .outcome import NotSurvivedError
from .sample_log import Count, behind_the_weights, count_samples, log_samples, read_launch

# More launches without a fault mean that the run makes no progress.
LAUNCHES_WITHOUT_FAULT = 3

BeforeStep = Callable[[int], None]


def nothing(_: int) -> None:
    """Do nothing."""


class Run:
    """A run folder, the launches that work on it, and the logs of what they consumed."""

    def __init__(
        self,
        material: Material,
        place: Path,
        variant: Variant,
        *,
        words: Sequence[str] = (),
        folder: Path | None = None,
        shards: Path | None = None,
    ) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.material, self.place, self.variant = material, place, variant
        self.folder = folder or place / "run"
        self.shards = shards
        self.words = [*material.words(variant, shards=shards), *words]
        self.resume_words: list[str] = []  # options of a resume besides --resume
        self.num_launches = 0

    def start(
        self,
        *,
        before_step: BeforeStep = nothing,
        prepare: Callable[[int], None] = nothing,
        world_size: int | None = None,
    ) -> Launch:
        """Fork the ranks of a launch: the first one, or one that resumes.

        Args:
            before_step: called in every rank before each optimizer step, with its number.
            prepare: called in every rank before the trainer starts, with the rank.
            world_size: of an elastic launch.
        """
        self.num_launches += 1
        logs = [self._log(rank) for rank in range(world_size or self.variant.world_size)]

        def prepare_rank(rank: int) -> None:
            # The rate only scales an utilisation, and measuring it takes as long as the training.
            hardware.MEASURED_SECONDS = 0.0
            hardware.MEASURED_SHAPES = {"cpu": (64, 64, 64)}
            log_samples(logs[rank], before_step)
            prepare(rank)

        return fork_trainer(
            self._command(), self._output(), world_size=len(logs), prepare=prepare_rank
        )

    def start_command(self, kind: str) -> Launch:
        """Start a launch under a launcher; the trainer is the command line's, with the log."""
        self.num_launches += 1
        words = launcher(kind, self.variant.world_size, "tests.faults.logged")
        log = self.place / f"launch-{self.num_launches:03d}"
        return start_command([*words, str(log), *self._command()], self._output())

    def finish(self, start: Callable[[], Launch] | None = None) -> None:
        """Resume until the run is finished.

        Raises:
            NotSurvivedError: an undisturbed launch failed, or the run makes no progress.
        """
        for _ in range(LAUNCHES_WITHOUT_FAULT):
            if self.is_finished:
                return
            (start or self.start)().end_well()
        if not self.is_finished:
            raise NotSurvivedError(f"no result after {LAUNCHES_WITHOUT_FAULT} quiet launches")

    def kill(self, launch: Launch) -> bool:
        """Kill every rank at once; return whether one was still alive."""
        launch.send(signal.SIGKILL)
        return any(status == -signal.SIGKILL for status in launch.wait())

    @property
    def is_finished(self) -> bool:
        return (self.folder / "result.json").exists()

    def checkpoints(self) -> list[Path]:
        """Return the folders that are checkpoints by their names, oldest first."""
        return sorted((self.folder / "checkpoints").glob("step_????????"))

    def has_checkpoint(self, step: int) -> bool:
        return (self.folder / "checkpoints" / f"step_{step:08d}").exists()

    def is_saving(self) -> bool:
        return any((self.folder / "checkpoints").glob("*.partial"))

    def steps_begun(self) -> int:
        """Return how many lines the first rank's log of this launch has: 0 during set-up."""
        log = self._log(0)
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def last_first_step(self) -> int | None:
        """Return the step at which the last launch resumed."""
        return read_launch(self._logs(self.num_launches)).first_step

    def count(self) -> Count:
        """Count the samples behind the final weights."""
        launches = [read_launch(self._logs(n + 1)) for n in range(self.num_launches)]
        return count_samples(self.material.expected_samples(), behind_the_weights(launches))

    def problems(self) -> list[str]:
        """Return the differences between the finished run and the undisturbed one."""
        count, found = self.count(), []
        if not count.is_exact:
            found.append(
                f"{count.lost} samples lost, {count.repeated} repeated, {count.misplaced} steps "
                "with others than theirs"
            )
        ignored = CLOCK | FETCHED_AHEAD if self.variant.fetches_ahead else CLOCK
        reference = self.material.reference(self.variant)
        return found + differences(self.folder, reference, ignored)

    def _command(self) -> list[str]:
        # A launch that died before the run folder was written has to be repeated.
        exists = (self.folder / "run.json").exists()
        resumes = ["--resume", *self.resume_words] if exists else []
        return [*self.words, "--run-folder", str(self.folder), *resumes]

    def _output(self) -> Path:
        return self.place / f"launch-{self.num_launches:03d}.txt"

    def _log(self, rank: int) -> Path:
        return self.place / f"launch-{self.num_launches:03d}-rank-{rank}.jsonl"

    def _logs(self, number: int) -> list[Path]:
        found = self.place.glob(f"launch-{number:03d}-rank-*.jsonl")
        return sorted(found, key=lambda file: int(re.findall(r"\d+", file.stem)[-1]))


def train_reference(material: Material, variant: Variant) -> None:
    """Train the undisturbed run, by the command line of a user.

    That of several ranks takes half a minute to start on a small machine: torchrun starts one of
    them, and the others are forked.
    """
    folder = material.reference(variant)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if variant.world_size > 1 and variant != Variant(1, 2):
        run = Run(material, folder.with_suffix(".forked"), variant, folder=folder)
        run.start().end_well()
        return
    kind = "python" if variant.world_size == 1 else "torchrun"
    words = [*launcher(kind, variant.world_size), *material.words(variant)]
    start_command([*words, "--run-folder", str(folder)], folder.with_suffix(".txt")).end_well()
