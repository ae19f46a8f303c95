"""The base of all errors that are the user's to fix."""

from typing import NoReturn


class UserError(ValueError):
    """Ends a program with its message in one line, instead of a traceback."""


def raise_it(error: UserError) -> NoReturn:
    """Refuse what is wrong, where another caller passes over it or warns."""
    raise error
