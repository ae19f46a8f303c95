"""One file per command of `python -m pretrain`: options, and a call."""
