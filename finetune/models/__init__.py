"""Fine-tuned models: kept on the disk, read again, used on new texts."""
