"""Format values of unknown origin for messages: one line, short, printable."""

MOST_LETTERS = 80
MOST_BITS = 256


def quoted(value: object) -> str:
    """Return the `repr` of a value, without its middle where it is long."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, str):
        value = value if len(value) <= MOST_LETTERS else _without_middle(value)
        return _printable(repr(value))
    if isinstance(value, list | tuple | dict) and len(value) > MOST_LETTERS:
        return f"{type(value).__name__} of {len(value):,} entries"
    try:
        return _printable(_without_middle(repr(value)))
    except (RecursionError, ValueError):  # deep nesting, or a number too long to convert
        return f"a nested {type(value).__name__}"


def plain(text: str) -> str:
    """Return a name or a sentence for a message: like `quoted`, but without quotes."""
    return _printable(_without_middle(text))


def on_one_line(error: object) -> str:
    """Return the message of an error with escapes: a file name must not forge a line of output."""
    letters = str(error)
    if letters.isprintable():
        return letters
    return "".join(
        letter if letter.isprintable() else repr(letter).strip("'") for letter in letters
    )


def _without_middle(text: str) -> str:
    if len(text) <= MOST_LETTERS:
        return text
    half = (MOST_LETTERS - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def is_unicode(text: str) -> bool:
    """Return whether text can be encoded; escapes can name an unpaired surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
