"""Commands on finished shard folders: verify, repair, show, split, import."""
