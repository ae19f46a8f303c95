"""The files of a fine-tuning sweep, and how they are read."""
