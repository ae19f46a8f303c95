import bz2

import pytest

from data_prep.sources.source import CorpusError, Skipped
from data_prep.sources.spec import open_source
from data_prep.sources.wikipedia import Page, plain_paragraphs
from tests.data_prep.sources.source_case import dump, page, read

MEDIA = frozenset(("file", "image", "media", "category"))

RIVER = """{{Infobox river|name=Tupelo|length=[[mile|miles]] 12}}
[[File:Tupelo.jpg|thumb|The [[river]] in ''spring''. It floods.]]
The '''Tupelo''' is a [[river]] in [[Mississippi|the state]] ({{lang|fr|tupélo}}).<ref name="a">A
book. Page 3.</ref> It flows {{convert|12|mi}} to the sea &mdash; slowly.<!-- Not. Shown. -->

{| class="wikitable"
! Year !! Depth
|-
| 1990 || A cell. With a sentence.
|}

== History of it. ==
'''''Bold and italic''''' boats were <u>found</u> [http://a.org there]. See [[Category:Rivers]]

* A list item
* A list item that ends as a sentence.
# Numbered
<gallery>
File:A.jpg|Caption. One.
</gallery>
== References ==
{{reflist}}
[[Category:Rivers of the South]]
[[de:Tupelo]]
"""


def test_what_is_left_of_wiki_markup_is_the_running_text():
    assert plain_paragraphs(Page(RIVER, MEDIA)) == [
        "The Tupelo is a river in the state. It flows to the sea — slowly.",
        "Bold and italic boats were found there. See",
        "A list item that ends as a sentence.",
    ]


def test_a_dump_gives_its_articles_and_counts_the_other_pages(tmp_path):
    content = dump(
        page("First & only text."),
        page("#REDIRECT [[x]]", redirect=True),
        page("Talk about it.", namespace=1),
        page("[[Datei:A.jpg|Ein Bild.]][[Kategorie:B.]]Zweiter Text."),
        page("Only a title"),
    )
    plain = tmp_path / "enwiki-pages-articles.xml"
    plain.write_text(content)
    # Wikimedia's .bz2 are many streams one after the other.
    packed = tmp_path / "enwiki-pages-articles.xml.bz2"
    halves = content[:300].encode(), content[300:].encode()
    packed.write_bytes(b"".join(map(bz2.compress, halves)))
    for file in (plain, packed):
        assert read(file) == [
            ["First & only text."],
            Skipped(str(file), 2, "a redirect"),
            Skipped(str(file), 3, "not an article"),
            ["Zweiter Text."],
        ]
        assert open_source(str(file)).licence == "CC BY-SA 4.0 (Wikipedia)"


def test_a_dump_cut_short_is_an_error_with_the_page_that_was_reached(tmp_path):
    file = tmp_path / "a.xml"
    file.write_text(dump(page("One."), page("Two."))[:-60])
    with pytest.raises(CorpusError, match=r"a\.xml: cannot be read after line 1"):
        read(file)
