"""Code that goes with an exported model: needs torch and transformers, and nothing of Tupelo."""
