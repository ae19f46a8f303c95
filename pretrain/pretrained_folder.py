"""Write a pre-trained model, ours or of others, as a folder that transformers loads."""

from pathlib import Path

from pretrain.export_tokenizer import write_tokenizer
from pretrain.exported import ExportRecord, is_stock_bert, write_model
from pretrain.pretrained import Pretrained


def write_pretrained(folder: Path, pretrained: Pretrained) -> None:
    """Write configuration, weights, tokenizer and the code that is needed."""
    record = ExportRecord(
        name=pretrained.name,
        step=pretrained.step,
        sequence_length=pretrained.sequence_length,
        tokenizer=pretrained.words.record,
        vocabulary=pretrained.words.fingerprint(),
    )
    write_model(folder, pretrained.model, pretrained.weights, record)
    write_tokenizer(
        folder,
        pretrained.words,
        sequence_length=pretrained.sequence_length,
        with_token_types=is_stock_bert(pretrained.model),
    )
