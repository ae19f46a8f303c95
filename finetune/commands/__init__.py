"""One file per command of `tupelo finetune`: options, and a call."""
