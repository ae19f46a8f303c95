"""Load an export with transformers and compare it with the trainer's model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from data_prep.shards.manifest import TOKENIZER_FILE
from pretrain.config.errors import ConfigError
from pretrain.config.settings import REPLACED_TOKEN_DETECTION
from pretrain.convert.in_transformers import quiet
from pretrain.convert.pretrained import Pretrained, restored_network
from pretrain.convert.text_encoder import MASK, TextEncoder
from pretrain.model.objectives.replaced_tokens import Discriminator

# Of a logit in fp32. Sums in another order differ by 1e-6 to 1e-5 where logits are of size 10, as
# those of a trained model, and by as much more as they are larger: a sum is rounded to 24 bits.
TOLERANCE, LOGIT_SIZE = 1e-4, 10.0
TEXT = (
    ("The committee met on Tuesday, and nobody could say why.", None),
    ("A list of names is returned in the order of the files.", "Is the order kept?"),
    (f"In winter the lake is covered with {MASK}, which carries a horse and a cart.", None),
    ("Yes.", "They asked whether 3.5 % of 1,200 is 42; it is, and the clerk wrote it down."),
)

Tokenize = Callable[..., Any]  # a tokenizer of transformers


class ExportCheck(NamedTuple):
    """The comparison of an export with the model that was trained."""

    largest_difference: float
    num_logits: int

    def row(self, unit: str) -> tuple[str, str]:
        """Return a row of a model card."""
        number = f"{self.largest_difference:.1g} in {self.num_logits:,} {unit}"
        return "largest difference to the trainer", f"{number}, fp32"


def rows_to_compare(pretrained: Pretrained) -> list[list[int]]:
    """Return sentences, and a row of random tokens as long as those of training."""
    length, encoder = pretrained.sequence_length, pretrained.text_encoder
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(encoder.record.vocabulary_size, (length,), generator=generator)
    return [*sentence_rows(encoder, length), ids.tolist()]


def sentence_rows(text_encoder: TextEncoder, length: int) -> list[list[int]]:
    """Return the sentences of this file as rows of at most `length` tokens."""
    return [
        text_encoder.ids(first)[:length]
        if second is None
        else text_encoder.pair_ids(first, second, max_length=length)
        for first, second in TEXT
    ]


def check_export(pretrained: Pretrained, folder: Path, rows: list[list[int]]) -> ExportCheck:
    """Compare logits and token ids of the export with the trainer's.

    Raises:
        ConfigError: they differ.
    """
    with quiet():
        is_discriminator = pretrained.objective == REPLACED_TOKEN_DETECTION
        auto_class = AutoModelForPreTraining if is_discriminator else AutoModelForMaskedLM
        model = auto_class.from_pretrained(folder, trust_remote_code=True).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        compare_tokenizers(
            pretrained.text_encoder, pretrained.sequence_length, tokenizer, name=pretrained.name
        )
    ids_BS, lengths_B = pretrained.text_encoder.padded(rows)
    is_word_BS = torch.arange(ids_BS.shape[1]) < lengths_B[:, None]
    with torch.no_grad():
        theirs = model(input_ids=ids_BS, attention_mask=is_word_BS.long()).logits[is_word_BS]
        ours = trainer_logits(pretrained, ids_BS, lengths_B)[is_word_BS]
    difference = (theirs - ours).abs().max().item()
    most = TOLERANCE * max(1.0, ours.abs().max().item() / LOGIT_SIZE)
    if not difference <= most:  # NaN too
        raise ConfigError(
            f"the logits of the exported model differ from the trainer's: the largest difference "
            f"is {difference:.2g}, more than {most:.0e}; nothing was written. Report this "
            f"with the run.json of {pretrained.name}"
        )
    return ExportCheck(difference, theirs.numel())


def trainer_logits(pretrained: Pretrained, ids_BS: Tensor, lengths_B: Tensor) -> Tensor:
    """Return the trainer's own logits at every position, BSV; of a discriminator BS."""
    model = restored_network(pretrained)
    if isinstance(model, Discriminator):
        return model.logits(ids_BS, lengths_B)
    x_BSD = model.encoder(ids_BS, lengths_B=lengths_B)
    logits_BSV: Tensor = model.head(x_BSD, model.encoder.token_embeddings.weight)
    return logits_BSV


def compare_tokenizers(
    text_encoder: TextEncoder, length: int, tokenizer: Tokenize, *, name: str
) -> None:
    """Check that an exported tokenizer makes our rows; one after Moses cannot, and is not compared.

    Args:
        text_encoder: that was exported.
        length: to which it cuts rows, in tokens.
        tokenizer: of transformers.
        name: of the model, for the message.

    Raises:
        ConfigError: it makes others.
    """
    if text_encoder.record.moses is not None:
        return
    mask = str(text_encoder.tokenizer.id_to_token(text_encoder.special["mask"]))
    for first, second in TEXT:
        if MASK in first:
            ours = text_encoder.ids(first)
            theirs = tokenizer(first.replace(MASK, mask))["input_ids"]
        else:
            ours = text_encoder.pair_ids(first, second, max_length=length)
            theirs = tokenizer(first, second, truncation=True)["input_ids"]
        if theirs != ours:
            raise ConfigError(
                f"the exported tokenizer encodes {first!r}, {second!r} as {theirs}, the trainer's "
                f"as {ours}; nothing was written. Report this with the {TOKENIZER_FILE} of "
                f"{name}"
            )
