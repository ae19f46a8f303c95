"""Detection of NaN, overflow and loss spikes; rewind, replay, watchdog."""
