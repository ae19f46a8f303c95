"""Pre-train encoders on shards, and compare how soon they converge."""

import logging

# It says on import, on every rank, that a machine with CUDA installed has no GPU at work.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
