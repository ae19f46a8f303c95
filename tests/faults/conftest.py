import pytest

from tests.faults.material import Material, Variant
from tests.faults.run import Run


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """Shards, and undisturbed runs on them, trained when they are asked for."""
    return Material(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def new_run(material, tmp_path):
    """Return a function that makes a run of this test."""

    def make(variant=None, name="0", **how):
        return Run(material, tmp_path / name, variant or Variant(), **how)

    return make
