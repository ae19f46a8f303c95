"""What `python -m pretrain doctor` looks at: the checks of an environment."""
