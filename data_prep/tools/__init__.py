"""Commands on finished shard folders: show, stats, verify, mix, repair, import."""
