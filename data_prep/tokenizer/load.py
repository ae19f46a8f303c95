"""Load an existing tokenizer from a file, a folder or the Hugging Face Hub."""

from pathlib import Path
from typing import Any, get_args

from tokenizers import Tokenizer, models, normalizers

from data_prep.files.hub import connect_to_hub
from data_prep.files.strict_json import JsonError, json_in
from data_prep.shards.manifest import TOKENIZER_FILE, SpecialToken
from data_prep.tokenizer.describe import CLS, UNK, SpecialNames, TokenizerError, read_tokenizer
from data_prep.tokenizer.train import bert_tokenizer

VOCABULARY_FILE = "vocab.txt"
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
    path = Path(place)
    file = _file_in(path) if path.is_dir() else path
    if file.is_file():
        tokenizer = _from_vocabulary(file) if file.suffix == ".txt" else read_tokenizer(file)
    elif path.suffix in FILE_SUFFIXES or path.is_absolute() or place.startswith("."):
        raise TokenizerError(f"{place}: no such file; {CHOICES}")
    else:
        tokenizer = _from_hub(place)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def special_names_beside(place: str) -> SpecialNames:
    """Return the names of special tokens in the configuration files beside a tokenizer."""
    folder = Path(place) if Path(place).is_dir() else Path(place).parent
    names: SpecialNames = {}
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        if not Path(place).exists() or not (folder / file).is_file():
            continue
        content = _json_in(folder / file)
        for role in get_args(SpecialToken):
            token = content.get(f"{role}_token")
            name = token.get("content") if isinstance(token, dict) else token
            if isinstance(name, str):
                names[role] = name
    return names


def _file_in(folder: Path) -> Path:
    for name in (TOKENIZER_FILE, VOCABULARY_FILE):
        if (folder / name).is_file():
            return folder / name
    raise TokenizerError(
        f"{folder}: holds neither {TOKENIZER_FILE} nor {VOCABULARY_FILE}; {CHOICES}"
    )


def _from_vocabulary(file: Path) -> Tokenizer:
    """Return BERT's tokenizer around a vocab.txt, with what the configuration beside it says."""
    try:
        entries = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file}: not valid UTF-8 ({error.reason}); {CHOICES}") from error
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    if len(vocabulary) < len(entries) or not {UNK, CLS} <= vocabulary.keys():
        raise TokenizerError(
            f"{file}: not a vocabulary of BERT's kind, which lists every entry once, among them "
            f"{UNK} and {CLS}; {CHOICES}"
        )
    configuration = file.with_name("tokenizer_config.json")
    known = _json_in(configuration) if configuration.is_file() else {}
    lowercase = known.get("do_lower_case")
    if lowercase is None:
        lowercase = not any(entry != entry.lower() for entry in entries if entry[:1] != "[")
    strips_accents = known.get("strip_accents")  # None: where it lowercases
    model = models.WordPiece(vocabulary, unk_token=UNK)
    tokenizer = bert_tokenizer(model, lowercase=bool(lowercase))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=bool(lowercase),
        strip_accents=strips_accents if strips_accents is None else bool(strips_accents),
        handle_chinese_chars=bool(known.get("tokenize_chinese_chars", True)),
    )
    return tokenizer


def _from_hub(name: str) -> Tokenizer:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return read_tokenizer(Path(hf_hub_download(name, TOKENIZER_FILE, local_files_only=True)))
    except LocalEntryNotFoundError:
        pass  # not downloaded before
    except HFValidationError as error:
        raise TokenizerError(f"{name}: neither a file nor a name on the Hub; {CHOICES}") from error
    try:
        connect_to_hub()
        return read_tokenizer(Path(hf_hub_download(name, TOKENIZER_FILE)))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        reason = str(error).strip().splitlines()[0]
        raise TokenizerError(
            f"{name}: the Hugging Face Hub has no {TOKENIZER_FILE} for it ({reason}); check the "
            "name, or download its files and give their folder"
        ) from error
    except OSError as error:
        raise TokenizerError(
            f"{name}: no such file, and the Hugging Face Hub cannot be reached ({error}); give a "
            "downloaded tokenizer.json, or train one: wordpiece, bpe, byte-bpe"
        ) from error


def _json_in(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json_in(file.read_bytes())
    except JsonError as error:
        raise TokenizerError(f"{file}: not valid JSON ({error}); repair or remove it") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{file}: not a JSON object; repair or remove it")
    return content
