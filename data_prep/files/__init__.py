"""Atomic writes, strict JSON, worker processes, progress bars: used by all other rooms."""
