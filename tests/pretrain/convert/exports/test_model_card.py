"""The header of a model card, which the Hub reads."""

from data_prep.shards.manifest import Manifest
from pretrain.convert.exports.model_card import source_of


def source(licence, **values):
    return source_of(Manifest.model_construct(licence=licence, settings=values))


def test_the_header_states_licence_data_and_language_where_they_are_known():
    wikipedia = "CC BY-SA 4.0 (Wikipedia)"
    known = {"language": "no", "datasets": None, "license": "cc-by-sa-4.0"}
    assert source(wikipedia, language="no") == known
    mixed = source(f"see the card of a/b; {wikipedia}", language="en: x")
    assert (mixed["license"], mixed["license_name"]) == ("other", "that-of-the-training-data")
    assert mixed["datasets"] == ["a/b"] and mixed["language"] is None
    assert source("that of the text files")["datasets"] is None
