"""The encoder and its objectives; knows nothing of devices, ranks or DeepSpeed."""
