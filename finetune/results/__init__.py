"""What a finished fine-tuning run leaves on the disk, and how it is read."""
