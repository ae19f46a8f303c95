"""Write the folder of an export so that it is complete or absent, whatever stops the program."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_prep.files.atomic import put_in_place, write_through
from pretrain.config.errors import ConfigError


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Yield an empty folder, which takes the place of the target when the block has ended.

    If the block fails, the target stays as it was.

    Raises:
        ConfigError: the folder cannot be written.
    """
    # The folder has its final name: transformers names the module of the code after it.
    around = target.absolute().parent / f".{target.name}.partial"
    partial, before = around / target.name, around / "before"
    try:
        if before.exists() and not target.exists():
            before.rename(target)  # an export was killed between its two renames
    except OSError as error:
        raise _refusal(target, error) from None
    shutil.rmtree(around, ignore_errors=True)  # of an export that was killed
    try:
        partial.mkdir(parents=True)
        yield partial
        for file in partial.iterdir():
            write_through(file)
        _put_in_place(partial, target, before=before)
    except OSError as error:
        raise _refusal(target, error) from None
    finally:
        shutil.rmtree(around, ignore_errors=True)


def _refusal(target: Path, error: OSError) -> ConfigError:
    reason = error.strerror or error
    return ConfigError(f"cannot write the export to {target}: {reason}; choose another --to")


def _put_in_place(partial: Path, target: Path, *, before: Path) -> None:
    replaces = target.exists()
    if replaces:
        target.rename(before)
    try:
        put_in_place(partial, target)
    except OSError:
        if replaces:
            before.rename(target)
        raise
