"""From sources to a shard folder: reading, selection, encoding, sequences; resumable."""
