import random

import pytest

from data_prep.settings import BuildSettings

WORDS = ["the", "boat", "river", "slowly", "over", "found", "keeps", "old", "café", "Zürich"]


def random_text(num_documents):
    random_words = random.Random(0)
    paragraphs = []
    for _ in range(num_documents):
        for _ in range(random_words.randint(1, 4)):
            sentences = [
                " ".join(random_words.choices(WORDS, k=random_words.randint(3, 12))).capitalize()
                for _ in range(random_words.randint(1, 5))
            ]
            paragraphs.append(". ".join(sentences) + ".")
        paragraphs.append("")
    return "\n".join(paragraphs) + "\n"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A text file of 120 documents."""
    file = tmp_path_factory.mktemp("corpus") / "text.txt"
    file.write_text(random_text(120), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def settings(corpus):
    return BuildSettings(
        corpus=(str(corpus),),
        sequence_length=16,
        vocabulary_size=300,
        valid_fraction=0.1,
        rows_per_shard=100,
    )


@pytest.fixture
def few(settings, corpus, tmp_path):
    """The settings of a build that takes a fraction of a second."""
    (tmp_path / "text.txt").write_text("\n\n".join(corpus.read_text().split("\n\n")[:16]))
    return settings.model_copy(update={"corpus": (str(tmp_path / "text.txt"),)})


@pytest.fixture(scope="session")
def built(settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "shards"
    from data_prep.pipeline.build import build

    build(settings, folder, workers=1, segment_bytes=20_000)
    return folder
