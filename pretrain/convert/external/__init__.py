"""Models of other programs: read, checked, and imported."""
