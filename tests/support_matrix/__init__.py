"""What can be combined, tried out: `python -m tests.support_matrix` writes docs/SPEED.md."""
