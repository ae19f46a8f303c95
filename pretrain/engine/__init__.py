"""The DeepSpeed engine, the optimizer and its state, the execution plan."""
