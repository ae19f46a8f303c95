"""From sources to a shard folder: segments, reading, selection, encoding, sequences, resume."""
