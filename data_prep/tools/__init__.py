"""Commands on finished shard folders: verify, repair, show, stats, split, mix, import."""
