"""A start and its checks, the loop; plans and profiles."""
