"""Pure functions of the step: learning rate, layer drop, time budget."""
