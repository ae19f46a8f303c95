"""One module for each kind of fault: what is done to a run, and what must be true after it."""
