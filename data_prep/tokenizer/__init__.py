"""Training, loading and describing tokenizers."""
