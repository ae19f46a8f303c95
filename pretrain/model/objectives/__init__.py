"""Pre-training objectives: an encoder, a head, a loss, and what these cost."""
