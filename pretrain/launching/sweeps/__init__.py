"""Sweeps: arms, seeds and values, trained in a queue that can be stopped anywhere."""
