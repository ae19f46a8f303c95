"""Sources of documents: one module for each kind, and how a source is named and opened."""
