"""Many fine-tuning runs: sources, trials, workers, progress."""
