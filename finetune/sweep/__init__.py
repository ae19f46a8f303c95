"""Many trials: references to models and tasks, workers, progress, and the folder of a sweep."""
