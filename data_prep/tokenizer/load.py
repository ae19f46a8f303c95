"""Load an existing tokenizer from a file, a folder or the Hugging Face Hub."""

import contextlib
import unicodedata
from pathlib import Path
from typing import Any, get_args

from pydantic_core import from_json
from tokenizers import Tokenizer, models, normalizers

from data_prep.files.hub import connect_to_hub, reason_of
from data_prep.shards.manifest import TOKENIZER_FILE, ShardError, SpecialToken, read_manifest
from data_prep.tokenizer.describe import CLS, UNK, SpecialNames, TokenizerError, read_tokenizer
from data_prep.tokenizer.train import bert_tokenizer

VOCABULARY_FILE, CONFIGURATION = "vocab.txt", "tokenizer_config.json"
# Classes of transformers whose vocab.txt is read, and those that cut words by another program.
BERTS = ("BertTokenizer", "ElectraTokenizer", "DistilBertTokenizer")
CUTTING = ("BertJapaneseTokenizer", "RoFormerTokenizer")
FILE_SUFFIXES = (".json", ".txt")  # names on the Hub hold dots too: "BAAI/bge-base-en-v1.5"
CHOICES = (
    "give a tokenizer.json, a vocab.txt, a folder that holds one, or a name on the Hugging Face "
    "Hub; or train one: wordpiece, bpe, byte-bpe"
)


def load_tokenizer(place: str) -> Tokenizer:
    """Load a tokenizer and disable its truncation and padding.

    Args:
        place: A tokenizer.json; a vocab.txt of BERT's kind; a folder that holds one of them; or a
            name on the Hugging Face Hub.

    Raises:
        TokenizerError: It does not exist or cannot be read, or the Hub cannot be reached.
    """
    file = path = Path(place)
    if path.is_dir():
        files = [path / name for name in (TOKENIZER_FILE, VOCABULARY_FILE)]
        file = next(filter(Path.is_file, files), path)
    if file.is_file():
        _refuse_other_classes(file, _json_in(file.with_name(CONFIGURATION)))
        tokenizer = _from_vocabulary(file) if file.suffix == ".txt" else read_tokenizer(file)
    elif path.is_dir() or path.suffix in FILE_SUFFIXES or place.startswith((".", "/")):
        raise TokenizerError(f"{place}: no tokenizer there; {CHOICES}")
    else:
        tokenizer = _from_hub(place)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def special_names_beside(place: str) -> SpecialNames:
    """Return the names of special tokens in the configuration or shards beside a tokenizer."""
    if not Path(place).exists():
        return {}
    folder = Path(place) if Path(place).is_dir() else Path(place).parent
    names: SpecialNames = {}
    with contextlib.suppress(ShardError):  # no shards are there
        numbers = read_manifest(folder).tokenizer.special_tokens
        tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
        names = {role: str(tokenizer.id_to_token(number)) for role, number in numbers.items()}
    for file in (CONFIGURATION, "special_tokens_map.json"):
        known = _json_in(folder / file)
        content = {"cls_token": known.get("bos_token"), "sep_token": known.get("eos_token")} | known
        for role in get_args(SpecialToken):
            token = content.get(f"{role}_token")
            name = token.get("content") if isinstance(token, dict) else token
            if isinstance(name, str):
                names[role] = name
    return names


def _refuse_other_classes(file: Path, known: dict[str, Any]) -> None:
    """Refuse a tokenizer of which the files of the tokenizers library do not hold all."""
    kind = str(known.get("tokenizer_class") or BERTS[0]).removesuffix("Fast")
    is_vocabulary = file.suffix == ".txt"
    odd = [kind] * (kind not in BERTS if is_vocabulary else kind in CUTTING)
    if is_vocabulary:
        options = ("never_split", False), ("do_basic_tokenize", True)
        odd += [name for name, usual in options if bool(known.get(name, usual)) != usual]
    if odd:
        raise TokenizerError(
            f"{file}: {' and '.join(odd)} in {CONFIGURATION} cuts words otherwise than this file "
            f"says; give one of {', '.join(BERTS)}, or a {TOKENIZER_FILE} that says all"
        )


def _from_vocabulary(file: Path) -> Tokenizer:
    """Return BERT's tokenizer around a vocab.txt, with what the configuration beside it says."""
    try:
        entries = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file}: not valid UTF-8 ({error.reason}); {CHOICES}") from error
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error.strerror}; {CHOICES}") from None
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    if len(vocabulary) < len(entries) or not {UNK, CLS} <= vocabulary.keys():
        raise TokenizerError(
            f"{file}: not a vocabulary of BERT's kind, which lists every entry once, among them "
            f"{UNK} and {CLS}; {CHOICES}"
        )
    known = _json_in(file.with_name(CONFIGURATION))
    lowercase, strips_accents = known.get("do_lower_case"), known.get("strip_accents")
    if lowercase is None:
        lowercase = not any(entry != entry.lower() for entry in entries if entry[:1] != "[")
        # Of stripped text all entries are decomposed, and None strips where it lowercases.
        if not all(unicodedata.is_normalized("NFD", entry) for entry in entries):
            strips_accents = strips_accents or False
    normalizer = normalizers.BertNormalizer(
        lowercase=bool(lowercase),
        strip_accents=strips_accents if strips_accents is None else bool(strips_accents),
        handle_chinese_chars=bool(known.get("tokenize_chinese_chars", True)),
    )
    return bert_tokenizer(models.WordPiece(vocabulary, unk_token=UNK), normalizer)


def _from_hub(name: str) -> Tokenizer:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        try:
            file = hf_hub_download(name, TOKENIZER_FILE, local_files_only=True)
        except LocalEntryNotFoundError:  # not downloaded before
            connect_to_hub()
            file = hf_hub_download(name, TOKENIZER_FILE)
    except (OSError, HFValidationError) as error:  # those of HTTP are OSErrors too
        raise TokenizerError(
            f"{name}: no such file, and the Hugging Face Hub has no {TOKENIZER_FILE} of this name "
            f"or cannot be reached ({reason_of(error)}); {CHOICES}"
        ) from error
    return read_tokenizer(Path(file))


def _json_in(file: Path) -> dict[str, Any]:
    """Return the object in a file, an empty one if there is no file."""
    if not file.is_file():
        return {}
    try:
        content = from_json(file.read_bytes())
    except (ValueError, OSError) as error:
        raise TokenizerError(f"{file}: not valid JSON ({error}); repair or remove it") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{file}: not a JSON object; repair or remove it")
    return content
