"""Read rows with named columns from Parquet, by pyarrow."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data_prep.files.extras import require
from data_prep.files.quoting import plain
from finetune.tasks.task import TaskError

ROWS_PER_BATCH = 4096


def parquet_rows(
    file: Path, columns: Sequence[str], check: Callable[[Sequence[str]], None]
) -> Iterator[dict[str, object]]:
    """Yield the values of some columns, row by row: text, numbers and truth values as Python's.

    Args:
        file: to be read.
        columns: that are read.
        check: called with the names of all columns before that.

    Raises:
        MissingPackage: pyarrow is not installed.
        TaskError: the file cannot be read, is not Parquet, or a text is not UTF-8.
    """
    require("pyarrow", by=str(file))
    import pyarrow
    from pyarrow import parquet

    row = 1
    try:
        with file.open("rb") as stream, parquet.ParquetFile(stream) as table:
            check(table.schema_arrow.names)
            batches = table.iter_batches(ROWS_PER_BATCH, columns=list(columns), use_threads=False)
            for batch in batches:
                yield from batch.to_pylist()
                row += batch.num_rows
    except UnicodeDecodeError:
        raise TaskError(
            f"{file}: of the {ROWS_PER_BATCH:,} rows from row {row:,} on, one has a text that is "
            "not UTF-8; write the file again"
        ) from None
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise TaskError(f"{file} cannot be read: {error.strerror}") from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise TaskError(
            f"{file}: not Parquet, or damaged: {plain(reason)}; write the file again"
        ) from None
