"""What a source gives."""

import pickle

from data_prep.sources.source import BEGINNING
from data_prep.sources.spec import open_source


def read(name, damaged_files="stop", *, start=BEGINNING):
    """Return the documents of a source, and what was skipped, in order.

    Source and documents are pickled on the way, as for a worker process.
    """
    source = pickle.loads(pickle.dumps(open_source(str(name), damaged_files=damaged_files)))
    found = []
    for item in source.read(start):
        paragraphs = source.paragraphs(pickle.loads(pickle.dumps(item)))
        found += [*item.skipped, *([paragraphs] if paragraphs else [])]
    return found
