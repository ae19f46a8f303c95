"""Dumps of a few pages, and what a source gives."""

import pickle
from xml.sax.saxutils import escape

from data_prep.sources.source import BEGINNING, Skipped
from data_prep.sources.spec import open_source


def page(text, *, namespace=0, redirect=False):
    mark = '<redirect title="x" />' if redirect else ""
    return (
        f"<page><title>T</title><ns>{namespace}</ns><id>1</id>{mark}"
        f"<revision><id>2</id><text>{escape(text)}</text></revision></page>"
    )


def dump(*pages):
    names = '<namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace>'
    return (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">'
        f"<siteinfo><namespaces>{names}</namespaces></siteinfo>{''.join(pages)}</mediawiki>"
    )


def read(name, damaged_files="stop", *, start=BEGINNING):
    """Return the documents of a source, and what was skipped, in order.

    Source and documents are pickled on the way, as for a worker process.
    """
    source = pickle.loads(pickle.dumps(open_source(str(name), damaged_files=damaged_files)))
    found = []
    for raw in source.raw_documents(start):
        if isinstance(raw, Skipped):
            found.append(raw)
        else:
            parsed = source.parse(pickle.loads(pickle.dumps(raw)))
            found += [*parsed.skipped, *([parsed.paragraphs] if parsed.paragraphs else [])]
    return found
