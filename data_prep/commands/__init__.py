"""One file per command of `tupelo data`: options, and a call."""
