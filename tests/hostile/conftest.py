"""The long way to run these tests: python -m pytest tests/hostile --hypothesis-profile=long."""

import hypothesis

from tests.data_prep.conftest import corpus, few, settings
from tests.pretrain.conftest import command, shards

__all__ = ["command", "corpus", "few", "settings", "shards"]

hypothesis.settings.register_profile(
    "long",
    max_examples=3000,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
