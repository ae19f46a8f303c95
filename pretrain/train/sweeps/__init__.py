"""Sweeps: arms x points of a grid x seeds, as many units at once as there is room for."""
