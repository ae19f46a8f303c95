"""One fine-tuning run: batches, model, targets, metrics, loop."""
