import pytest


@pytest.fixture(scope="session")
def source(command, tmp_path_factory):
    """A run with checkpoints after 10 and 20 steps."""
    return command.train(tmp_path_factory.mktemp("runs") / "source", "--name", "small")
