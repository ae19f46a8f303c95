"""What a source gives."""

import pickle

from data_prep.sources.source import BEGINNING, Skipped
from data_prep.sources.spec import open_source


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
