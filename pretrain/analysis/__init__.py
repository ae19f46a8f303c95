"""What trained models do inside: the figures of the papers, drawn from the checkpoints of runs."""
