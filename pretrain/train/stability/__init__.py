"""Detection of NaN, overflow and loss spikes; the response: stop, skip or rewind."""
