"""Tasks, suites of tasks, and their examples: original files, the Hub, files of the user."""
