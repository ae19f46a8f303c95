"""Format values of unknown origin for messages: one line, short, printable."""

MOST_LETTERS = 80


def quoted(value: object) -> str:
    """Return the `repr` of a value, without its middle where it is long."""
    try:
        return plain(repr(value))
    except (RecursionError, ValueError):  # deep nesting, or a number too long to convert
        return f"a value of type {type(value).__name__}, too long to show"


def plain(text: str) -> str:
    """Return a name or a sentence for a message: like `quoted`, but without quotes."""
    if len(text) > MOST_LETTERS:
        half = (MOST_LETTERS - 3) // 2
        text = f"{text[:half]}...{text[-half:]}"
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def on_one_line(error: object) -> str:
    """Return the message of an error with escapes: a file name must not forge a line of output."""
    letters = str(error)
    if letters.isprintable():
        return letters
    return "".join(one if one.isprintable() else repr(one).strip("'") for one in letters)


def first_line(error: Exception) -> str:
    """Return the first line of an error of a library; of an empty one the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def is_unicode(text: str) -> bool:
    """Return whether text can be encoded; escapes can name an unpaired surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_spelling(name: str) -> str:
    """Return the form in which spellings are compared: SST-2, sst_2 and sst2 are one name."""
    return name.lower().replace("-", "").replace("_", "")
