"""Say in a few lines what a shard folder holds."""

from data_prep.manifest import Manifest


def summary(manifest: Manifest) -> str:
    """Return a line for each split, one for each kind of cleaning and one for each later change."""
    lines = []
    for name, split in manifest.splits.items():
        counted = {"words": split.words, "sentences": split.sentences}
        known = "".join(f"{number:,} {unit}, " for unit, number in counted.items() if number)
        lines.append(
            f"  {name}: {split.documents:,} documents, {known}{split.tokens:,} tokens, "
            f"{split.rows:,} rows of {manifest.sequence_length} in {len(split.shards)} files "
            f"({split.rows_dropped} dropped)"
        )
    lines += [f"  {what}: {number:,}" for what, number in manifest.cleaning.items()]
    lines += [f"  afterwards: {change}" for change in manifest.history]
    return "\n".join(lines)
