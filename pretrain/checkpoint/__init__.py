"""Checkpoints: format, writer, resume."""
