"""Packages that only an extra of pyproject.toml installs: each is imported where it is used."""

import shlex
import sys
from importlib.metadata import PackageNotFoundError, version

from data_prep.files.errors import UserError


class MissingPackage(UserError):
    """A package is needed and not installed."""


def require(package: str, *, by: str) -> str:
    """Return the version of a package, before it is imported.

    Args:
        package: its name.
        by: what needs it, for the message.

    Raises:
        MissingPackage: it is not installed.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        raise MissingPackage(
            f"{by} needs the package {package}, which is not installed; install it with: "
            f"{shlex.quote(sys.executable)} -m pip install {package}"
        ) from None
