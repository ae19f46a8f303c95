"""Tupelo: pre-train BERT-style encoders, and measure how much sooner a change converges."""

__version__ = "0.2.0"
