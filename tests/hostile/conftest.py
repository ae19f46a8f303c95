"""The long way to run these tests: python -m pytest tests/hostile --hypothesis-profile=long."""

from hypothesis import HealthCheck, settings

from tests.pretrain.conftest import command, shards

__all__ = ["command", "shards"]

settings.register_profile(
    "long", max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck)
)
