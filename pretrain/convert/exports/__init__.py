"""What an export is: its files, how it is written, compared with the trainer and described."""
