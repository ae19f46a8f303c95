"""The HDF5 format: packing documents into rows, manifest, reading rows back."""
