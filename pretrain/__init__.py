"""Pre-train encoders on shards, and compare how soon they converge."""
