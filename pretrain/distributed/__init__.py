"""Ranks, processes, signals and failures; the one import of deepspeed."""
