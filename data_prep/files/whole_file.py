"""Read files of others whole, such as JSON or a vocabulary: regular ones, of a size that fits."""

import errno
import stat
from pathlib import Path

MOST_BYTES = 1 << 28  # ten times the largest tokenizer.json in use


def content_of(file: Path, *, most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file.

    Raises:
        OSError: it cannot be read, is a pipe or a device, or has more than `most` bytes.
    """
    found = file.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device", str(file))
    if found.st_size > most:
        raise OSError(errno.EFBIG, f"{found.st_size:,} bytes are more than {most:,}", str(file))
    return file.read_bytes()
