"""The training of one trial: batches, model, targets, metrics, loop."""
