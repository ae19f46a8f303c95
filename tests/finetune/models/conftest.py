import pytest

from tests.finetune.models.kept_case import fine_tuned

STOCK = {"positions": "bert-a", "norm": "post"}


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    """A model of three classes of texts."""
    return fine_tuned(tmp_path_factory.mktemp("classes") / "sweep/letters/tiny-0.001-seed0")


@pytest.fixture(scope="session")
def numbers(tmp_path_factory):
    """A model that predicts a number of a pair of texts."""
    place = tmp_path_factory.mktemp("numbers")
    return fine_tuned(place, regression=True, pair=True, positions="tupe-r", norm="post")


@pytest.fixture(scope="session")
def stock(tmp_path_factory):
    """A model of classes that transformers has a class for."""
    return fine_tuned(tmp_path_factory.mktemp("stock"), **STOCK)


@pytest.fixture(scope="session")
def stock_numbers(tmp_path_factory):
    """The same of a regression, beside a large mean."""
    place = tmp_path_factory.mktemp("stock_numbers")
    return fine_tuned(place, regression=True, start=5e6, **STOCK)
