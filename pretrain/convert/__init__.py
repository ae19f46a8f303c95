"""Models to and from files: loaded, exported, imported."""
