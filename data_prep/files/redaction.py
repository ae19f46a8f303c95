"""Remove what looks like a token, a key or a password from text that is kept.

It knows the shapes that common services give their tokens, and values that are assigned to names
such as `API_KEY`. A secret of another shape under another name stays: this is no reason to write
secrets into code.
"""

import re

REMOVED = "[removed]"

# Names that hold secrets; `token` alone often names a piece of text, as in pad_token.
_NAMES = (
    r"password|passwd|secret|api_?key|access_?key(?:_?id)?|private_?key|auth_?token|credentials?"
)
_RANDOM = r"(?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])[A-Za-z0-9+/=_-]{8,}"  # letters and digits

_SHAPES = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    r"(?<![A-Za-z0-9])(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abeprs]-|npm_|pypi-|AIza|ya29\.)"
    r"(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{12,}",
    r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{12,}",
    r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # a JSON web token
    r"(?<=://)[^/\s@\"']+(?=@)",  # user:password@ or token@ in an address
)
# The value is removed, the name stays.
_VALUES = (
    r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/-]{8,}=*",
    rf"(?i)(\b[\w.-]*(?:{_NAMES})\w*[\"']?\s*[:=]\s*)([\"']).+?\2",  # quoted: code and JSON
    r"(?i)(\b[\w.-]*token[\"']?\s*[:=]\s*)([\"'])(?=[^\s\"'\[\]<>]{8,}\2).+?\2",
    # Without quotes: of a shell or of a list of variables.
    r"(\b[A-Z0-9_]*(?:TOKEN(?!IZ)|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_KEY|CREDENTIAL)[A-Z0-9_]*=)"
    r"[^\s\"'$]+",
    rf"(?i)(\b[\w-]*(?:{_NAMES}|token):[ \t]+){_RANDOM}(?=\s|$)",  # YAML
    rf"(?i)(\b[\w-]*(?:{_NAMES})\s+=\s+){_RANDOM}(?=\s|$)",  # INI
)
_SHAPE = tuple(re.compile(shape, re.DOTALL) for shape in _SHAPES)
_VALUE = tuple(re.compile(value) for value in _VALUES)
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
