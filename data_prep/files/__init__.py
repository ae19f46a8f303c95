"""Files, JSON, worker processes, progress bars: what every other room may use."""
