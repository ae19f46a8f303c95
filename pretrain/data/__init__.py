"""From shards to masked batches."""
