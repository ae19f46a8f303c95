"""What transformers makes of the files of a model, without its progress bars and warnings."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from transformers import AutoTokenizer
from transformers.utils import logging

from data_prep.shards.manifest import TOKENIZER_FILE
from pretrain.config.errors import ConfigError
from pretrain.convert.text_encoder import PROBE_TEXTS, TextEncoder


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


def check_tokenizer_in_transformers(text_encoder: TextEncoder, length: int, folder: Path) -> None:
    """Check that transformers makes the same tokens of text.

    Args:
        text_encoder: that was read from the folder.
        length: of the longest row.
        folder: of the model.

    Raises:
        ConfigError: it does not; names a text. Or it cannot read the tokenizer.
    """
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # of any class: its files may be anything
        first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(
            f"{folder}: transformers cannot read the tokenizer, so that nothing says which tokens "
            f"the model knows ({first_line})"
        ) from None
    for word in PROBE_TEXTS:
        ours = text_encoder.pair_ids(word, max_length=length)
        theirs = tokenizer(word, truncation=True, max_length=length)["input_ids"]
        if theirs != ours:
            raise ConfigError(
                f"{folder}: {word!r} becomes {ours} here and {theirs} in transformers; save "
                f"AutoTokenizer.from_pretrained({str(folder)!r}) there, or in a copy: its "
                f"{TOKENIZER_FILE} gives the same tokens to both. If it is transformers that is "
                'wrong, correct tokenizer_config.json, for instance "do_lower_case": false'
            )
