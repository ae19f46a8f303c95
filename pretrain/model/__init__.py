"""The encoder: positions, attention, blocks, head. Knows nothing of devices, ranks or DeepSpeed."""
