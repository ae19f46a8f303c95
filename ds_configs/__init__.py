"""DeepSpeed configurations, one for each ZeRO stage and precision."""
