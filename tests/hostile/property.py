"""What is promised of every reader: a good result or one clear line, soon."""

import faulthandler

from hypothesis import HealthCheck, given, settings

SECONDS = 120  # of one example; all take a fraction of one, but machines are shared
LONGEST_MESSAGE = 600
LONG = 1000  # from so many examples on, the profile of the command line counts
EXAMPLES = 6


def few():
    """Return the settings of a test: few examples, always the same; more with the profile long."""
    if settings.default.max_examples >= LONG:
        return settings.default
    return settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def result_or_clear_error(read, errors, *, naming):
    """Return what `read` returns, or None where it raised one of the errors, and said it well.

    Where it hangs, the process ends and shows where. `naming` are words of which the message must
    hold one, such as the name of the file.
    """
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    try:
        return read()
    except errors as error:
        check_message(str(error), naming)
        return None
    finally:
        faulthandler.cancel_dump_traceback_later()


def check_message(message, naming):
    """Check that a message is one short line that can be printed and says what is wrong where."""
    assert message.isprintable(), repr(message)
    assert 0 < len(message) < LONGEST_MESSAGE, message
    assert any(word in message for word in naming), f"{message!r} names none of {naming}"


def check_file(file, mutate, read, errors, *, naming, then=lambda _: None):
    """Check that a file is read or refused, whatever becomes of it.

    `mutate` makes a strategy of the content of a file, see mutations.py; `errors` and `naming` are
    as of `result_or_clear_error`, and `then` checks what was read. The file is restored in the end.
    """
    content = file.read_bytes()

    @few()
    @given(mutate(content))
    def check(mutated):
        file.write_bytes(mutated)
        try:
            found = result_or_clear_error(read, errors, naming=naming)
            if found is not None:
                then(found)
        finally:
            file.write_bytes(content)

    check()
