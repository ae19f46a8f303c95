"""Load an export with transformers and compare it with the trainer's model on real text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from data_prep.shards.format import open_shards
from data_prep.shards.manifest import MANIFEST_FILE, TOKENIZER_FILE, read_manifest
from pretrain.config.errors import ConfigError
from pretrain.config.recipe import load_settings
from pretrain.config.settings import REPLACED_TOKEN_DETECTION
from pretrain.convert.in_transformers import quiet
from pretrain.convert.pretrained import Pretrained, restored_network
from pretrain.convert.text_encoder import MASK, TextEncoder
from pretrain.data.shards import shards_folder
from pretrain.model.objectives.replaced_tokens import Discriminator

# Of a logit in fp32. Sums in another order differ by 1e-6 to 1e-5 where logits are of size 10, as
# those of a trained model, and by as much more as they are larger: a sum is rounded to 24 bits.
TOLERANCE, LOGIT_SIZE = 1e-4, 10.0
NUM_ROWS = 4
TEXT = (
    ("The committee met on Tuesday, and nobody could say why.", None),
    ("A list of names is returned in the order of the files.", "Is the order kept?"),
    (f"In winter the lake is covered with {MASK}, which carries a horse and a cart.", None),
    ("Yes.", "They asked whether 3.5 % of 1,200 is 42; it is, and the clerk wrote it down."),
)

Tokenize = Callable[..., Any]  # a tokenizer of transformers


class ComparedRows(NamedTuple):
    """Rows of token ids, of different lengths, and their origin in words."""

    rows: list[list[int]]
    source: str


class ExportCheck(NamedTuple):
    """The comparison of an export with the model that was trained."""

    largest_difference: float
    num_logits: int
    source: str

    def row(self, unit: str) -> tuple[str, str]:
        """Return a row of a model card."""
        number = f"{self.largest_difference:.1g} in {self.num_logits:,} {unit}"
        return "largest difference to the trainer", f"{number} of {self.source}, fp32"


def rows_to_compare(pretrained: Pretrained, run: Path) -> ComparedRows:
    """Return held-out rows of the run, if its shards are available, and sentences of this file.

    The rows are of different lengths, so that the batch is padded, and some tokens are masked.
    """
    text_encoder = pretrained.text_encoder
    sentences = sentence_rows(text_encoder, pretrained.sequence_length)
    folder = shards_folder(load_settings(run))
    if (folder / MANIFEST_FILE).is_file():
        manifest = read_manifest(folder)
        fits = manifest.tokenizer.sha256 == text_encoder.record.sha256
        if fits and "valid" in manifest.splits:
            split = open_shards(folder).split("valid")
            stored = split.rows(np.arange(min(NUM_ROWS, split.num_rows))).tolist()
            held_out = _cut_and_masked(stored, text_encoder.special["mask"])
            return ComparedRows(held_out + sentences, "held-out sequences and a few sentences")
    return ComparedRows(sentences, "a few sentences, as the shards are not available")


def sentence_rows(text_encoder: TextEncoder, length: int) -> list[list[int]]:
    """Return the sentences of this file as rows of at most `length` tokens."""
    return [
        text_encoder.ids(first)[:length]
        if second is None
        else text_encoder.pair_ids(first, second, max_length=length)
        for first, second in TEXT
    ]


def check_export(pretrained: Pretrained, folder: Path, compared: ComparedRows) -> ExportCheck:
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
    ids_BS, lengths_B = pretrained.text_encoder.padded(compared.rows)
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
    return ExportCheck(difference, theirs.numel(), compared.source)


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


def _cut_and_masked(stored: list[list[int]], mask: int) -> list[list[int]]:
    rows = []
    for number, row in enumerate(stored):
        ids = row[: max(3, len(row) * (len(stored) - number) // len(stored))]
        ids[4::7] = [mask] * len(ids[4::7])
        rows.append(ids)
    return rows
