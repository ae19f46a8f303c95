"""Many fine-tuning runs: models, trials, workers, progress."""
