"""The HDF5 format: packing documents into sequences, manifest, reading them back."""
