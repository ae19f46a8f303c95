"""What is measured in a step: phases, bytes, peak FLOP/s, memory."""
