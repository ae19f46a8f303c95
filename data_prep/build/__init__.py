"""From sources to a shard folder: reading, selection, segments, resume."""
