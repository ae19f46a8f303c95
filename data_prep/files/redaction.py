"""Remove what looks like a token, a key or a password from text that is kept, and folders.

It knows the shapes that common services give their tokens, and values that are assigned to names
such as `API_KEY`. A secret of another shape under another name stays: this is no reason to write
secrets into code. All repetitions are bounded, so that the time grows with the length of the text
only.
"""

import re

REMOVED = "[removed]"

# Names that hold secrets; `token` alone often names a piece of text, as in pad_token.
_NAMES = r"password|passwd|secret|(?:api|access|private)[_-]?key|auth[_-]?token|credentials?"
_BEFORE = r"\b[\w.-]{0,64}"
# Between a name and its value in quotes: `"] = b`, `: str = `, `: `.
_ASSIGNED = (
    r"\w{0,64}[\"']?\]?(?:\s?:\s?[\w\[\], |.]{1,64}?)?\s{0,8}(?::?=|:)\s{0,8}[rbfuRBFU]{0,2}"
)
# Letters and digits, at least one of each.
_RANDOM = r"(?=[^\s\"']{0,512}\d)(?=[^\s\"']{0,512}[A-Za-z])[A-Za-z0-9+/=_-]{8,512}(?=\s|$)"

_SHAPES = (
    r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----"
    r"(?:.{0,8192}?-----END [A-Z ]{0,32}PRIVATE KEY-----|.{0,8192})",
    r"(?<![A-Za-z0-9])(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abeprs]-|npm_|pypi-|AIza|ya29\.)"
    r"(?=[A-Za-z_-]{0,512}\d)[A-Za-z0-9_-]{12,512}",
    r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{12,128}",
    r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,999}\.[A-Za-z0-9_-]{8,999}\.[A-Za-z0-9_-]{0,999}",  # JWT
    r"(?<=://)[^/\s@\"']{1,512}(?=@)",  # user:password@ or token@ in an address
)
# The value is removed, the name stays.
_VALUES = (
    r"(?i)(\bbearer\s{1,8})[A-Za-z0-9._~+/-]{8,4096}=*",
    rf"(?i)({_BEFORE}(?:{_NAMES}){_ASSIGNED})(\"\"\"|'''|\"|').{{1,4096}}?\2",
    rf"(?i)({_BEFORE}token{_ASSIGNED})([\"'])(?=[^\s\"'\[\]<>]{{8,4096}}\2).{{1,4096}}?\2",
    # Without quotes: of a shell or of a list of variables.
    r"(\b[A-Z0-9_]{0,64}(?:TOKEN(?!IZ)|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_KEY|CREDENTIAL)"
    r"[A-Z0-9_]{0,64}=)[^\s\"'$]{1,4096}",
    rf"(?i)({_BEFORE}(?:{_NAMES}|token):[ \t]{{1,8}}){_RANDOM}",  # YAML
    rf"(?i)({_BEFORE}(?:{_NAMES}|token)(?:=|\s{{1,8}}=\s{{1,8}})){_RANDOM}",  # INI
)
_SHAPE = tuple(re.compile(shape, re.DOTALL) for shape in _SHAPES)
_VALUE = tuple(re.compile(value) for value in _VALUES)
# An absolute path up to its last part, of which a home may be the only folder; not the address of a
# page. A label before it is no scheme: `source:/home/me/x`. `~a/b` is about a ratio, and no home.
_PART = r"(?:[^\s/:\"'|,;<>()]+/)"
_FOLDERS = re.compile(
    rf"(?i:\bfile:(?://[\w.-]*)?)/{_PART}*|(?<![\w./~])~[A-Za-z_][\w.-]+/{_PART}*"
    rf"|(?<![\w./~])(?!//)(?:~|\.\.)?/{_PART}+"
)
# In a command, where quotes are gone; in code this would match any argument `token=x`.
_OF_COMMANDS = re.compile(r"(?i)((?:token|password|secret|api_?key)=)[^\s:&]+")


def without_secrets(text: str) -> str:
    """Remove what looks like a token, a key or a password."""
    for shape in _SHAPE:
        text = shape.sub(REMOVED, text)
    for value in _VALUE:
        text = value.sub(rf"\1{REMOVED}", text)
    return text


def command_without_secrets(words: list[str]) -> list[str]:
    """Return the words of a command without what looks like a token, a key or a password."""
    return [without_secrets(_OF_COMMANDS.sub(rf"\1{REMOVED}", word)) for word in words]


def without_folders(text: str) -> str:
    """Return the text with absolute paths cut to their last part."""
    return _FOLDERS.sub("", text)
