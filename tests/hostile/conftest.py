"""The long way to run these tests: python -m pytest tests/hostile --hypothesis-profile=long."""

import hypothesis

hypothesis.settings.register_profile(
    "long", max_examples=3000, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
