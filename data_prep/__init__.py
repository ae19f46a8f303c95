"""Turn raw text into HDF5 shards of token ids. Imports nothing else of this project."""
