"""How training is started: data first, then one process or a launcher, and many runs in a sweep."""
