"""What can be combined, tried out; `python -m tests.support_matrix.table` writes docs/SPEED.md."""
