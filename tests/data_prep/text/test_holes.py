from collections import Counter

import pytest

from data_prep.text.holes import without_holes

HURT = [
    "It had a draught of .",
    "He (; born 1950) is a man.",
    "The film () was made.",
    "Aardvarks ( ) dig.",
    "From the Greek , it means rule.",
    "U-boats were, , and others.",
    'Named "", she sailed.',
    "Here is {{template.",
    "thumb|links|200px|A caption of the picture.",
    "The chosen -{zh-hans:计算机; zh-hant:電腦;}- is here.",
    "__KEIN_INHALTSVERZEICHNIS__.",
    "It grew by\ufffclater.",
]
WHOLE = [
    'He said "no", then (after 5 p.m.) left ...',
    "Use .NET, e.g. |x| or __init__; it is { 1, 2 }.",
    "Dr. Smith (1950) met her.",
]


@pytest.mark.parametrize("hurt", HURT)
def test_a_sentence_with_a_hole_is_dropped_and_its_neighbours_stay(hurt):
    counts = Counter()
    paragraphs = [f"{WHOLE[2]} {hurt} It ends.", *WHOLE, hurt]
    found = without_holes(paragraphs, counts, splitter="sentencex", language="en")
    assert found == [f"{WHOLE[2]} It ends.", *WHOLE, ""]
    assert counts == {"sentences dropped: holes of templates, or markup": 2}
