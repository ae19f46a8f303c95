import numpy as np
import pytest

from data_prep.masking import IGNORED, Masking, mask_sequences, predictions_per_sequence
from data_prep.shards.manifest import TokenizerRecord

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
TOKENIZER = TokenizerRecord(
    kind="wordpiece", sha256="", vocabulary_size=1000, special_tokens=SPECIAL
)
NUM_ROWS, LENGTH = 2000, 100
GOLDEN = 0x9E3779B97F4A7C15
# A word has 1.5 pieces on average. Special tokens are marked as pieces: it must not matter.
WORD_STARTS = np.arange(1000) % 3 != 0
WORD_STARTS[:5] = False
TOKENS = Masking()
WORDS = Masking("words", word_starts=WORD_STARTS)
SPANS = Masking("spans", word_starts=WORD_STARTS)


@pytest.fixture(scope="module")
def ids():
    rows = np.random.default_rng(0).integers(5, 1000, (NUM_ROWS, LENGTH)).astype(np.uint16)
    rows[:, 0], rows[:, 40], rows[:, -1] = 2, 3, 3
    return rows


def masked(ids, numbers=None, seed=7, epoch=0, **options):
    numbers = np.arange(len(ids)) if numbers is None else numbers
    return mask_sequences(ids, numbers, seed=seed, epoch=epoch, tokenizer=TOKENIZER, **options)


def predicted(found):
    """Which columns are predicted [n, S]."""
    chosen = np.zeros(found.ids.shape, bool)
    np.put_along_axis(chosen, found.positions, found.labels != IGNORED, axis=1)
    return chosen


def splitmix64_of_integers(state):
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


def words_of(ids):
    """The columns of each word of a row, special tokens left out."""
    words, after_special = [], True
    for column, token in enumerate(ids):
        if token in SPECIAL.values():
            after_special = True
            continue
        if after_special or WORD_STARTS[token]:
            words.append([])
        words[-1].append(column)
        after_special = False
    return words


def groups_of(ids, hashes, kind):
    """The words that are hidden together, in the order in which they are tried."""
    if kind == "tokens":
        groups = [[[column]] for word in words_of(ids) for column in word]
        return sorted(groups, key=lambda group: hashes[group[0][0]])
    groups, end = [], None
    for word in words_of(ids):
        coin = hashes[word[0]] % 2**32 < 2**32 / 3.8
        if kind == "words" or coin or word[0] != end:
            groups.append([])
        groups[-1].append(word)
        end = word[-1] + 1
    return sorted(groups, key=lambda group: hashes[group[0][0]] >> 33)


def masked_by_hand(ids, row, kind, *, seed, epoch, shares=(0.8, 0.1)):
    """The masked row and which columns are predicted, with loops and integers of Python."""
    stream = splitmix64_of_integers(splitmix64_of_integers(seed) ^ epoch)
    stream = splitmix64_of_integers(stream ^ row)
    second = splitmix64_of_integers(stream)
    hashes, draws = (
        [splitmix64_of_integers((s + column * GOLDEN) % 2**64) for column in range(len(ids))]
        for s in (stream, second)
    )
    shown, columns = list(ids), []
    for group in groups_of(ids, hashes, kind):
        for word in group:
            if len(columns) + len(word) > predictions_per_sequence(len(ids)):
                return shown, sorted(columns)
            columns += word
            for column in word:
                decider = group[0][0] if kind == "spans" else column
                action = (draws[decider] >> 32) / 2**32
                if action < shares[0]:
                    shown[column] = SPECIAL["mask"]
                elif action < sum(shares):
                    shown[column] = 5 + (draws[column] % 2**32 * 995 >> 32)
    return shown, sorted(columns)


@pytest.mark.parametrize("masking", [TOKENS, WORDS, SPANS], ids=lambda masking: masking.kind)
def test_rows_are_masked_as_by_hand(ids, masking):
    found = masked(ids, epoch=2, masking=masking)
    chosen = predicted(found)
    assert found.positions.shape == found.labels.shape == (NUM_ROWS, 15)
    assert all(array.dtype == np.int64 for array in found)
    for row in range(0, NUM_ROWS, 40):
        shown, columns = masked_by_hand(ids[row].tolist(), row, masking.kind, seed=7, epoch=2)
        assert np.flatnonzero(chosen[row]).tolist() == columns
        assert found.ids[row].tolist() == shown


@pytest.mark.parametrize("shares", [(0.85, 0.0), (0.0, 1.0)])
def test_other_shares_of_mask_and_random_tokens_change_nothing_else(ids, shares):
    masking = Masking(mask_token_share=shares[0], random_token_share=shares[1])
    found, usual = masked(ids, masking=masking), masked(ids)
    assert (found.positions == usual.positions).all() and (found.labels == usual.labels).all()
    for row in range(0, NUM_ROWS, 40):
        shown, _ = masked_by_hand(ids[row].tolist(), row, "tokens", seed=7, epoch=0, shares=shares)
        assert found.ids[row].tolist() == shown


def test_an_id_without_an_entry_is_never_shown_and_every_other_one_is(ids):
    holes = np.array([7, 8, 400, 999])
    shown = masked(ids, masking=Masking(mask_token_share=0, random_token_share=1, holes=holes))
    drawn = np.take_along_axis(shown.ids, shown.positions, axis=1)
    assert set(drawn.ravel().tolist()) == {*range(1000)} - {*SPECIAL.values(), *holes.tolist()}


@pytest.mark.parametrize("mean", [2, 3.8])
def test_the_lengths_of_spans_are_geometric(mean):
    length, num_rows, probability = 4000, 300, 0.05
    rows = np.random.default_rng(0).integers(5, 1000, (num_rows, length)).astype(np.uint16)
    every = np.ones(1000, bool)  # a span of so many words is one of so many tokens
    masking = Masking("spans", probability, mean, every)
    chosen = predicted(masked(rows, masking=masking))
    edges = np.diff(chosen.astype(int), axis=1, prepend=0, append=0)
    lengths = np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1]
    # Where a span ends, another one may begin: 5 % of them touch. About 10,000 runs at least:
    # four standard deviations are below 0.02; one span of 30 at least is shortened.
    goes_on = 1 - (1 - probability) / mean
    for words in range(1, 8):
        longer = (lengths > words).sum() / (lengths >= words).sum()
        assert longer == pytest.approx(goes_on, abs=0.03)


@pytest.mark.parametrize("masking", [TOKENS, WORDS, SPANS], ids=lambda masking: masking.kind)
def test_a_batch_of_any_size_is_masked_alike(masking):
    """Rows are worked on in blocks; these are longer than one."""
    rows = np.random.default_rng(0).integers(5, 1000, (700, 128)).astype(np.uint16)
    whole = masked(rows, masking=masking)
    for numbers in ([0], [5, 699, 17], range(200, 300)):
        numbers = np.array(numbers)
        part = masked(rows[numbers], numbers, masking=masking)
        for some, all_rows in zip(part, whole, strict=True):
            assert (some == all_rows[numbers]).all()


@pytest.mark.parametrize("masking", [WORDS, SPANS], ids=lambda masking: masking.kind)
def test_a_word_of_more_pieces_than_slots_is_never_hidden(masking):
    rows = np.full((50, 40), 7, np.uint16)  # words of one piece, but for one of seven
    rows[:, 10], rows[:, 11:17] = 8, 9
    chosen = predicted(masked(rows, masking=masking))
    assert not chosen[:, 10:17].any()
    assert chosen[:, :10].any() and chosen[:, 17:].any()


@pytest.mark.parametrize("masking", [WORDS, SPANS], ids=lambda masking: masking.kind)
def test_the_columns_of_the_longest_rows_fit_into_a_key(masking):
    longest = np.full((1, 1 << 16), 7, np.uint16)
    assert predicted(masked(longest, masking=masking)).sum() > 9000


def test_a_row_has_15_percent_predictions_and_at_least_one():
    assert [predictions_per_sequence(length) for length in (100, 128, 512, 3)] == [15, 19, 77, 1]
    assert predictions_per_sequence(100, 0.4) == 40


def test_other_epochs_and_seeds_give_other_masks(ids):
    first = masked(ids).positions
    for other in (masked(ids, epoch=1), masked(ids, seed=8), masked(ids, seed=-7)):
        assert (other.positions != first).any(axis=1).mean() > 0.99


def test_rows_with_too_few_ordinary_tokens_have_ignored_labels():
    ids = np.zeros((4, 20), np.uint16)
    ids[:, 1] = 9
    found = masked(ids)
    assert (np.sort(found.labels, axis=1) == [IGNORED, IGNORED, 9]).all()
    assert (found.ids[:, 2:] == 0).all()
