"""Clocks, power and temperature of the GPU while something is timed.

A GPU that is hot or at its power limit lowers its clock: times of such a stretch are not those of
another one. nvidia-smi samples in a process of its own.
"""

import statistics
import subprocess
from types import TracebackType

# Name in the JSON -> query of nvidia-smi.
FIELDS = {
    "clock_mhz": "clocks.sm",
    "largest_clock_mhz": "clocks.max.sm",
    "power_watts": "power.draw",
    "power_limit_watts": "power.limit",
    "temperature": "temperature.gpu",
}
INTERVAL_MILLISECONDS = 250
SECONDS_TO_END = 10


class GpuClocks:
    """Samples the current GPU as a context manager; on a CPU it does nothing."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.medians: dict[str, float] | None = None  # of the samples; None: there were none

    def __enter__(self) -> "GpuClocks":
        import torch

        if torch.cuda.is_available():
            number = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
            query = [f"--query-gpu={','.join(FIELDS.values())}", f"--id=GPU-{number}"]
            style = ["--format=csv,noheader,nounits", f"--loop-ms={INTERVAL_MILLISECONDS}"]
            try:
                self._process = subprocess.Popen(
                    ["nvidia-smi", *query, *style],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            except OSError:
                self._process = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                text, _ = self._process.communicate(timeout=SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                text, _ = self._process.communicate()
            self.medians = medians_of(text)


def medians_of(text: str) -> dict[str, float] | None:
    """Return the medians of the samples that nvidia-smi printed, one a line."""
    samples = []
    for line in text.splitlines():
        words = line.split(",")
        if len(words) != len(FIELDS):
            continue  # a line that was cut when the process ended
        try:
            samples.append([float(word) for word in words])
        except ValueError:  # "[N/A]": this GPU does not report it
            continue
    if not samples:
        return None
    columns = zip(*samples, strict=True)
    return {name: statistics.median(column) for name, column in zip(FIELDS, columns, strict=True)}
