"""How a value of unknown origin stands in a message: on one line, short, in printable letters."""

MOST_LETTERS = 80
MOST_BITS = 256


def quoted(value: object) -> str:
    """Return a value as Python writes it, without its middle where it is long."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, str):
        value = value if len(value) <= MOST_LETTERS else _without_middle(value)
        return _printable(repr(value))
    if isinstance(value, list | tuple | dict) and len(value) > MOST_LETTERS:
        return f"{type(value).__name__} of {len(value):,} entries"
    try:
        return _printable(_without_middle(repr(value)))
    except (RecursionError, ValueError):  # deep nesting, or a number too long for digits in it
        return f"a nested {type(value).__name__}"


def plain(text: str) -> str:
    """Return a name or a sentence for a message: like `quoted`, but without quotes."""
    return _printable(_without_middle(text))


def _without_middle(text: str) -> str:
    if len(text) <= MOST_LETTERS:
        return text
    half = (MOST_LETTERS - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def is_unicode(text: str) -> bool:
    """Say whether text can be written; escapes in JSON and Python can name half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
