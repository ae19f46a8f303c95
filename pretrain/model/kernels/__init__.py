"""Fused operators for CPUs and GPUs."""
