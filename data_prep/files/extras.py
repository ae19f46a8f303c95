"""Packages that only an extra of pyproject.toml installs: each is imported where it is used."""

from importlib.metadata import PackageNotFoundError, version

from data_prep.files.errors import UserError

EXTRA_OF = {
    "datasets": "hub",
    "pandas": "pandas",
    "pyarrow": "tables",
    "sacremoses": "tupe-text",
    "spacy": "tupe-text",
}


class MissingPackage(UserError):
    """A package is needed and not installed."""


def require(package: str, *, by: str) -> str:
    """Return the version of a package, before it is imported.

    Args:
        package: its name.
        by: what needs it, for the message.

    Raises:
        MissingPackage: it is not installed; the message names the extra that brings it.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        extra = f"[{EXTRA_OF[package]}]" if package in EXTRA_OF else ""
        raise MissingPackage(
            f"{by} needs the package {package}, which is not installed; install it with: "
            f"pip install -e '.{extra}'"
        ) from None
