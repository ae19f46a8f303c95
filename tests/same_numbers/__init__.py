"""Proof that numbers stay equal bit for bit: `python -m tests.same_numbers OLD_COMMIT`."""
