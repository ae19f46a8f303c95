"""Models and tokenizers that transformers loads from a folder, compared with ours."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoTokenizer
from transformers.utils import logging

from data_prep.text.text_encoder import SENTENCES
from data_prep.tokenizer.describe import TokenizerError
from pretrain.config.errors import ConfigError
from pretrain.convert.model import Pretrained, token_logits

# Of a logit in fp32. Sums in another order differ by 1e-6 to 1e-5 where logits span 10, as those of
# a trained model, and by as much more as they span more: a sum is rounded to 24 bits.
TOLERANCE, LOGIT_SPAN = 1e-4, 10.0


class ExportCheck(NamedTuple):
    """The comparison of a model in transformers with ours."""

    largest_difference: float
    num_logits: int


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing progress bars and warnings."""
    verbosity, had_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bar:
            logging.enable_progress_bar()


@torch.no_grad()
def compare_logits(theirs: Any, pretrained: Pretrained, *, fix: str) -> ExportCheck:
    """Compare the logits of a model of transformers with ours, but those at padding.

    The rows are the sentences of this file, and one as long as those of training. `theirs` becomes
    fp32 and goes into evaluation mode. `fix` is what to do where they differ.

    Raises:
        ConfigError: they differ by more than rounding.
    """
    length, encoder = pretrained.sequence_length, pretrained.text_encoder
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(encoder.record.vocabulary_size, (length,), generator=generator)
    sentences = [encoder.ids(*pair, max_length=length) for pair in SENTENCES]
    ids_BS, lengths_B = encoder.padded([*sentences, ids.tolist()])
    is_word_BS = torch.arange(ids_BS.shape[1]) < lengths_B[:, None]
    theirs = theirs.float().eval()
    found = theirs(input_ids=ids_BS, attention_mask=is_word_BS.long()).logits[is_word_BS]
    expected = token_logits(pretrained)(ids_BS, lengths_B)[is_word_BS]
    difference = (found - expected).abs().max().item()
    span, size = float(expected.max() - expected.min()), float(expected.abs().max())
    most = TOLERANCE * max(1.0, span / LOGIT_SPAN) + 4 * torch.finfo(torch.float32).eps * size
    if not difference <= most:  # NaN too
        raise ConfigError(
            f"the logits in transformers differ from those here: the largest difference is "
            f"{difference:.2g}, more than {most:.0e}; nothing was written. {fix}"
        )
    return ExportCheck(difference, found.numel())


def check_tokenizer(pretrained: Pretrained, folder: Path, *, num_random: int, fix: str) -> None:
    """Check that transformers makes the same rows of text, see `TextEncoder.compare`.

    Raises:
        ConfigError: it does not; names a text.
    """
    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    try:
        pretrained.text_encoder.compare(
            lambda *texts: list(tokenizer(*texts, verbose=False)["input_ids"]),
            num_random=num_random,
            fix=fix,
        )
    except TokenizerError as error:
        raise ConfigError(f"{folder}: {error}") from None
