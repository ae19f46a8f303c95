"""The base of all errors that are the user's to fix."""


class UserError(ValueError):
    """Ends a program with its message in one line, instead of a traceback."""


class ConfigError(UserError):
    """The user's settings ask for something that does not exist or cannot be combined."""
