"""Tokenizers: training, loading, and the properties that the manifest records."""
