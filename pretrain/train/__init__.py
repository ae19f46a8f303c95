"""The training loop, its counters and the run folder."""
