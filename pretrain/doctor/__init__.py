"""Checks of a machine and of a run, before it starts or when it fails."""
