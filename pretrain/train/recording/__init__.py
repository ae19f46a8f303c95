"""What a run writes down and sends: counters, metrics, run folder, provenance, curves."""
