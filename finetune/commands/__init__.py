"""One file per command of `python -m finetune`: options, and a call."""
