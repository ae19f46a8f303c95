"""One run that is disturbed and resumed, launch after launch, and judged at its end."""

import json
import shutil

from pretrain.checkpoint.folders import newest_checkpoint
from tests.faults.sample_log import behind_the_weights, read_launch
from tests.forked_command import launcher, start_command, start_module
from tests.same_numbers.comparison import CLOCK, differences


class Run:
    """A run folder, the launches that work on it, and the logs of what they consumed."""

    def __init__(self, material, place, variant, *, words=(), folder=None):
        place.mkdir(parents=True, exist_ok=True)
        self.material, self.place, self.variant = material, place, variant
        self.folder = folder or place / "run"
        self.words = [*material.words(variant), *map(str, words)]
        self.num_launches = 0

    def copy(self, place, folder=None):
        """Return a run that goes on in a copy of this one's folder, or in another folder."""
        copy = Run(self.material, place, self.variant, folder=folder)
        if folder is None:
            shutil.copytree(self.folder, copy.folder)
        for log in self.place.glob("launch-*.jsonl"):
            shutil.copy(log, place)
        copy.num_launches = self.num_launches
        return copy

    def start(self, *fault, kind=None, elastic=False):
        """Start the ranks of a launch, the first one or one that resumes, with a fault.

        `kind` is a launcher; without one the ranks are forked.
        """
        self.num_launches += 1
        place = self.place / f"launch-{self.num_launches:03d}"
        # A launch that died before the run folder was written has to be repeated.
        exists = (self.folder / "run.json").exists()
        resumes = ["--elastic" if elastic else "--resume"] if exists else []
        given = json.dumps([str(word) if hasattr(word, "parts") else word for word in fault])
        words = [place, given if fault else '["none"]', *self.words]
        words += ["--run-folder", self.folder, *resumes]
        ranks, module = self.variant.world_size, "tests.faults.disturbed"
        if kind is not None:
            words = [*launcher(kind, ranks, module), *words]
            return start_command(words, place.with_suffix(".txt"))
        files = [(place.with_suffix(f".{rank}.txt"),) * 2 for rank in range(ranks)]
        return start_module(module, words, ranks, files=files)

    def finish(self, *fault, **how):
        """Take one more launch, which must finish the run."""
        launch = self.start(*fault, **how)
        assert set(launch.wait()) == {0}, launch.output[-3000:]
        assert self.is_finished, launch.output[-3000:]

    def judge(self):
        """Compare the finished run with the undisturbed one: samples, lines, weights, moments."""
        assert self.samples() == self.material.expected_samples
        reference = self.material.reference(self.variant)
        weights = f"{newest_checkpoint(reference).name}/*.safetensors"
        files = ("metrics.jsonl", "evals.jsonl", "result.json", weights)
        assert differences(reference, self.folder, files, CLOCK) == []

    def samples(self):
        """Return the samples behind the final weights, by step."""
        return behind_the_weights(
            map(read_launch, map(self._logs, range(1, self.num_launches + 1)))
        )

    @property
    def is_finished(self):
        return (self.folder / "result.json").exists()

    def checkpoints(self):
        """Return the steps of the folders that are checkpoints by their names."""
        folders = (self.folder / "checkpoints").glob("step_????????")
        return sorted(int(folder.name[-8:]) for folder in folders)

    def steps_begun(self):
        """Return how many lines the first rank's log of this launch has: 0 during set-up."""
        logs = self._logs(self.num_launches)
        return logs[0].read_bytes().count(b"\n") if logs else 0

    def first_step(self):
        """Return the step at which the last launch resumed."""
        return read_launch(self._logs(self.num_launches))[0]

    def _logs(self, number):
        return sorted(self.place.glob(f"launch-{number:03d}-rank-?.jsonl"))
