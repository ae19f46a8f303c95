import pytest

from tests.finetune.models.kept_case import fine_tuned


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    """A model of three classes of texts."""
    return fine_tuned(tmp_path_factory.mktemp("classes") / "sweep/letters/tiny/lr_0.001/seed_0")


@pytest.fixture(scope="session")
def numbers(tmp_path_factory):
    """A model that predicts a number of a pair of texts."""
    place = tmp_path_factory.mktemp("numbers")
    return fine_tuned(place, regression=True, pair=True, positions="tupe-r", norm="post")
