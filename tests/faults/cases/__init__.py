"""One module per kind of fault: the fault, and what must hold after it."""
