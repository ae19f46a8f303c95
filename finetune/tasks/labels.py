"""The labels of a task of the user's own: those of its training file."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from finetune.tasks.tables import shortened
from finetune.tasks.task import TaskError

# More different numbers than a scale of grades has: they are measured values, not classes.
MAX_FRACTIONAL_LABELS = 10


def number_in(word: str) -> Decimal | None:
    """Return the finite number that a word is, exactly; None: it is none.

    Nor is a code such as 1_2, which Python reads.
    """
    try:
        number = None if "_" in word else Decimal(word.strip())
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None


def labels_of(words: Sequence[str], where: str) -> tuple[str, ...]:
    """Return the classes in ascending order: numeric if all are numbers, else alphabetical.

    Args:
        words: the label of each training row.
        where: file and column, for messages.

    Raises:
        TaskError: they are measured values or texts rather than classes, or two of them are one
            class spelled in two ways.
    """
    found = set(words)
    _refuse_values(found, where)
    _refuse_two_spellings(found, where)
    if len(found) > max(MAX_FRACTIONAL_LABELS, len(words) / 2):
        raise TaskError(
            f"{where} holds {len(found):,} different labels in {len(words):,} rows, too many "
            "to learn; choose another column"
        )
    numbers = {word: number_in(word) for word in found}
    if None in numbers.values():
        return tuple(sorted(found))
    return tuple(sorted(found, key=lambda word: (numbers[word], word)))


def _refuse_values(words: set[str], where: str) -> None:
    numbers = [number for number in map(number_in, words) if number is not None]
    fractions = [number for number in numbers if number != number.to_integral_value()]
    if len(numbers) == len(words) > MAX_FRACTIONAL_LABELS and fractions:
        raise TaskError(
            f"{where} holds {len(words):,} different numbers, such as {min(fractions)}, not "
            "classes; predict numbers with --regression, or choose another column"
        )


def _refuse_two_spellings(words: set[str], where: str) -> None:
    spellings: dict[str | Decimal, str] = {}
    for word in sorted(words):
        number = number_in(word)
        other = spellings.setdefault(word.strip() if number is None else number, word)
        if other != word:
            fix = "spell the number in one way"
            if other.strip() == word.strip():
                fix = "remove the spaces"
            raise TaskError(
                f"{where} holds {shortened(other)!r} and {shortened(word)!r}, which would be two "
                f"classes; {fix}"
            )
