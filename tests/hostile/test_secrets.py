"""What is removed from what a run keeps and a card shows: invented tokens, and folders."""

import json
import sys
import time

import pytest

from data_prep.files.redaction import (
    REMOVED,
    command_without_secrets,
    without_folders,
    without_secrets,
)
from pretrain.train.recording.provenance import (
    RECORDED_VARIABLES,
    environment,
    keep_uncommitted_code,
)

TOKEN = "hf_" + "a1B2" * 8
LETTERS = "a1b2c3d4e5f6a7b8c9d0"  # of an invented token
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n+{LETTERS}\n+{LETTERS}\n+-----END RSA PRIVATE KEY-----"

WITH_SECRETS = [
    f"export WANDB_API_KEY={LETTERS}",
    f"+WANDB_API_KEY={LETTERS} python train.py",
    f"AWS_SECRET_ACCESS_KEY={LETTERS}/x+y",
    f"aws_secret_access_key = {LETTERS}",
    "AKIA" + 2 * "IOSFODNN",
    f'"api_key": "{LETTERS}"',
    f"'client_secret': '{LETTERS}'",
    f"password: {LETTERS}",
    f"hub_token: {LETTERS}",
    f"    wandb_api_key: {LETTERS}",
    f'"Authorization": "Bearer {LETTERS}"',
    *(start + LETTERS for start in ("hf_", "ghp_", "glpat-", "xoxb-", "github_pat_", "sk-")),
    f"eyJ{LETTERS}.eyJ{LETTERS}.{LETTERS}",
    KEY,
    f"https://{LETTERS}@example.org/repository.git",
    f"https://me:{LETTERS}@example.org/x",
    f'access_token = "{LETTERS}"',
    'password = "hunter2"',
    f'os.environ["WANDB_API_KEY"] = "{LETTERS}"',
    f'api_key: str = "{LETTERS}"',
    f'apiKey := "{LETTERS}"',
    f'password = b"{LETTERS}"',
    f'api_key = """{LETTERS}"""',
    f"wandb_api_key={LETTERS}",
    f"hub_token = {LETTERS}",
    f"X-API-Key: {LETTERS}",
    KEY.partition("-----END")[0],
]


@pytest.mark.parametrize("text", WITH_SECRETS)
def test_a_secret_is_removed_wherever_it_is_written(text):
    found = without_secrets(f"before\n{text}\nafter\n")
    assert LETTERS not in found and "hunter2" not in found and "IOSFODNN" not in found
    assert REMOVED in found
    assert found.startswith("before\n")
    assert found.endswith("\nafter\n") or "BEGIN" in text


@pytest.mark.parametrize(
    "text",
    [
        "--corpus hub:wikitext:config=x skip_tokens=12 tokenizer=a https://example.org:80/a@b",
        'tokenizer.add_special_tokens({"pad_token": "[PAD]", "mask_token": "<mask>"})',
        "def ids(self, token: int, mask_token: str) -> list[int]:",
        "loss = model(ids, token=token, api_key=get_key())",
        "TOKENS_AT_ONCE = 4096\nMASK_TOKEN = mask_id",
        'unk_token = "[UNK]"',
        "tokens_per_second: float\nsecret: bool",
        "-----BEGIN PUBLIC KEY-----",
        "from huggingface_hub import hf_hub_download",
        "export TOKENIZERS_PARALLELISM=false",
        "the bearer of news, sk-learn, hf_name",
    ],
)
def test_code_without_secrets_stays_as_it_is(text):
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "part", ["0.1-", "-----BEGIN PRIVATE KEY-----", "-eyJaaaaaaaa", "hf_-", "token token", "a" * 7]
)
def test_the_time_grows_with_the_length_of_the_text_only(part):
    start = time.process_time()
    without_secrets(part * (100_000 // len(part)))
    assert time.process_time() - start < 5


def test_a_word_of_a_command_has_no_quotes():
    words = ["hub:name:token=abc:split=x", "--corpus", "a?api_key=abc&x=1"]
    assert command_without_secrets(words) == [
        *("hub:name:token=[removed]:split=x", "--corpus", "a?api_key=[removed]&x=1")
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/texts/wiki.txt (1 file)", "wiki.txt (1 file)"),
        (
            '"corpus": ["text:/home/me/a b/wiki.txt:weight=2"]',
            '"corpus": ["text:a b/wiki.txt:weight=2"]',
        ),
        ("~/texts/wiki.txt, ../more/x.txt", "wiki.txt, x.txt"),
        ("https://example.org/a/b and runs/x/y", "https://example.org/a/b and runs/x/y"),
        ("tokens/s, 1/2 and/or", "tokens/s, 1/2 and/or"),
        ("file:///home/me/texts/wiki.txt", "wiki.txt"),
        ("file://host/home/me/wiki.txt, file:/home/me/wiki.txt", "wiki.txt, wiki.txt"),
        ("text:~bob/texts/wiki.txt, ~bob/wiki.txt", "text:wiki.txt, wiki.txt"),
        ("about ~5/10, a~b/c, ratio ~a/b", "about ~5/10, a~b/c, ratio ~a/b"),
        ("profile:/home/me/x, see profile:/a/b", "profile:x, see profile:b"),
    ],
)
def test_folders_of_the_machine_are_left_out(text, shown):
    assert without_folders(text) == shown


def test_no_token_or_password_is_kept(checkout, run, monkeypatch):
    (checkout / "new.py").write_text(f'login("{TOKEN}", token=token)\npassword = "hunter2"\n')
    text = (run / keep_uncommitted_code(run, checkout)["diff"]).read_text()
    assert TOKEN not in text and "hunter2" not in text
    assert 'login("[removed]", token=token)' in text
    assert all(file.stat().st_mode & 0o077 == 0 for file in (run / "code").iterdir())

    words = ["train", f"hub:name:token={TOKEN}", "https://me:hunter2@example.org/x", "--seed", "1"]
    monkeypatch.setattr(sys, "argv", words)
    recorded = environment({"LD_PRELOAD": "/lib/x.so", "HF_TOKEN": TOKEN, "HOME": "/home/me"})
    assert recorded["command"] == [
        *("train", "hub:name:token=[removed]", "https://[removed]@example.org/x", "--seed", "1")
    ]
    assert recorded["variables"] == {"LD_PRELOAD": "/lib/x.so"}
    assert TOKEN not in json.dumps(recorded) and "hunter2" not in json.dumps(recorded)


def test_no_variable_that_is_recorded_can_hold_a_secret():
    for name in RECORDED_VARIABLES:
        assert not {"TOKEN", "KEY", "SECRET", "PASSWORD"} & set(name.split("_")), name
    assert len(set(RECORDED_VARIABLES)) == len(RECORDED_VARIABLES)
