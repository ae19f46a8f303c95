"""The data of a run: used as they are, or built first."""

import sys
from collections.abc import Sequence

from data_prep.sources.source import CorpusError
from data_prep.sources.spec import open_source
from pretrain.config.settings import RunSettings
from pretrain.data.shards import check_text, open_data, shards_folder
from pretrain.train.launching.child import Child, run_child, trainer_words


def must_build(settings: RunSettings) -> bool:
    """Return whether the shards of a run are to be built from its text."""
    return settings.data.shards is None and not shards_folder(settings).exists()


def prepare_data(settings: RunSettings, words: Sequence[str], *, ranks: int | None) -> None:
    """Describe the shards of a run; build them first, in a new process, if they are not there.

    The memory of a build in this process would be reported as that of the run. `words` are those of
    `tupelo prepare`. What so many `ranks` here cannot execute is refused before a build; None:
    their number is not known.

    Raises:
        ConfigError: the shards do not fit the settings, or those that are named do not exist.
        ShardError: they are damaged.
        CorpusError, TokenizerError: there is no such text, or no such tokenizer.
        SystemExit: the build was stopped, or has failed; it has printed why.
    """
    if not must_build(settings):
        print(describe_data(settings))
        return
    check_text(settings)  # here, as the new process imports torch first
    for_run = [] if ranks is None else ["--ranks", str(ranks)]
    ended = run_child(Child(trainer_words("prepare", *words, *for_run)))
    if ended.stopped:
        print("stopped; the same command continues from here", file=sys.stderr)
        sys.exit(ended.status or 1)
    if ended.status:
        sys.exit(ended.status)


def describe_data(settings: RunSettings) -> str:
    """Return what the shards of a run hold, and notes on a small tokenizer and on changed text.

    Raises:
        ConfigError: there are none, or they do not fit the settings.
        ShardError: they are damaged.
    """
    folder, manifest = shards_folder(settings), open_data(settings).manifest
    counts = manifest.splits
    described = ", ".join(f"{split} {counts[split].rows:,} sequences" for split in counts)
    text = f"shards in {folder}: {described} of {settings.data.sequence_length} tokens"
    notes = []
    entries, rows = manifest.tokenizer.vocabulary_size, settings.model.vocabulary_size
    if entries < rows / 2 and settings.data.shards is not None:  # a build says so itself
        notes.append(
            f"note: the tokenizer in {folder} has {entries} entries, but model.vocabulary_size="
            f"{rows}: most of the embeddings are never used; give --model.vocabulary_size {entries}"
        )
    now = manifest.source
    try:
        if settings.data.shards is None:
            # Files that a build may have skipped are no reason to refuse them.
            sources = [open_source(name, damaged_files="skip") for name in settings.data.corpus]
            now = "; ".join(source.description for source in sources)
    except CorpusError:
        now = "nowhere: it is gone"
    if not now.startswith(manifest.source):  # those beyond `max_words` are not in it
        notes.append(
            f"note: the text has changed since {folder} was built (then {manifest.source}; now "
            f"{now}); remove that folder to build it again"
        )
    return "\n".join([*notes, text])
