"""Passwords, tokens and keys, by their shapes, by the names that they are given to, and where they must stand."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpudoctor.probes._secrets import HIDDEN

_PREFIXED = (
    r"(?:hf|api_org|gh[pousr]|github_pat|glpat|gldt|glcbt|xox[abeoprs]|sk|pk|rk|npm|pypi|dckr_pat|nvapi|wandb_v1|hvs|SG"
    r"|gsk|r8|shpat|lin_api|dop_v1|ya29|ABSK|tskey)[-_.]"
)
_SHAPES = re.compile(
    rf"(?<![A-Za-z0-9])(?:{_PREFIXED}(?=[\w.-]{{0,80}}\d)[A-Za-z0-9_-][\w.-]{{14,400}}"
    r"|AIza[\w-]{30,60}|(?:AKIA|ASIA|ABIA)[0-9A-Z]{16}"
    r"|eyJ[\w-]{10,4000}(?:\.[\w-]{1,4000}){0,4})"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]|-(?!----END)){0,20000}(?:-----END [A-Z ]{0,30}-----)?"
)
_LOGIN = re.compile(r"(?<=//)(?!git@)[^\s/@\"'<>]{1,512}@")
_BEARER = re.compile(r"\b((?:Bearer|Basic|Digest|Token|ApiKey)\s{1,4})([A-Za-z0-9._~+/=-]{8,4000})", re.IGNORECASE)
_COOKIE = re.compile(r"\b((?:Set-)?Cookie\s{0,4}:\s{0,4})([^\r\n]{1,4000})", re.IGNORECASE)
_WHAT = (
    r"(?:token|secret|passw(?:or)?d|passphrase|pass|pwd|credentials?|api[_-]?key|access[_-]?key(?:[_-]?id)?|auth"
    r"|secret[_-]?key|private[_-]?key|signing[_-]?key|signature|sig|key|keys|jwt|dsn)"
)
_VALUE = r"(?:\\?\"([^\"\r\n\\]{1,4000})|\\?'([^'\r\n\\]{1,4000})|([^\s\"',;&<>)\]}\\]{1,4000}))"
_ASSIGNED = re.compile(
    rf"(?<![A-Za-z])((?:[A-Za-z0-9]{{1,40}}[_.-]){{0,6}}{_WHAT})\\?['\"]?\s{{0,4}}[=:](?![=:])\s{{0,4}}{_VALUE}",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"(--(?:[a-z]{{1,40}}-){{0,4}}{_WHAT}|\bpassword|\bpasswd)\s{{1,4}}{_VALUE}", re.IGNORECASE)
"""On a command line, or in a ``.netrc``."""
_STRONG = re.compile(
    r"passw(?:or)?d|passphrase|[_-](?:pass|pwd|token|secret|key|keys|credentials?|auth|jwt|dsn|sig|signature)\Z|secret|"
    r"api_?key|access_?key|credentials?\Z",
    re.IGNORECASE,
)
"""Names that make any value a secret; what is given to others is one where it looks so."""
_OPEN = re.compile(
    r"(?:none|null|true|false|yes|no|on|off|nan|required|missing|invalid|expired|authentication|failed|error|denied"
    r"|files|nis|\(hidden\)?|\*+|x+|\.+|<.*|\$.*|\d{1,6}|[/~].*|[a-z]:\\.*|.{1,3})\Z",
    re.IGNORECASE,
)
"""Values that are no secret, whatever they are given to."""
_RANDOM = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w+/=~-]{12,}\Z")
_LONG = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{40,20000}={0,2}(?![\w+/-])")
_UUID = re.compile(r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}", re.IGNORECASE)
"""What stands for one by now, and mixes as much."""
_PLAIN = re.compile(r"token|secret|pass|pwd|cred|key|auth|sig|jwt|cookie|dsn", re.IGNORECASE)

Hide = Callable[[str], str]


def without_secrets(text: str, hide: Hide) -> str:
    """The text with each secret that its shape or its name gives away as `hide` gives it."""
    text = _SHAPES.sub(lambda match: hide(match[0]), text)
    if "//" in text:
        text = _LOGIN.sub(lambda match: f"{hide(match[0])}@", text)
    if _PLAIN.search(text):
        text = _BEARER.sub(lambda match: match[1] + (match[2] if match[2].isalpha() else hide(match[2])), text)
        text = _COOKIE.sub(lambda match: match[1] + hide(match[2]), text)
        text = _ASSIGNED.sub(lambda match: _assigned(match, hide), text)
        text = _OPTION.sub(lambda match: _assigned(match, hide), text)
    return text


def without_long(text: str, hide: Hide) -> str:
    """The text with each long run of letters and digits that only a key can be as `hide` gives it."""
    return _LONG.sub(lambda match: hide(match[0]) if _is_random(match[0]) else match[0], text)


def _assigned(match: re.Match[str], hide: Hide) -> str:
    value = match[2] or match[3] or match[4]
    return match[0].removesuffix(value) + _given(match[1], value, hide)


def _given(name: str, value: str, hide: Hide) -> str:
    """The value hidden, unless it says nothing, or the name alone would not make it a secret."""
    if _OPEN.match(value) or value == HIDDEN:
        return value
    return hide(value) if _STRONG.search(name) or _RANDOM.match(value) else value


def _is_random(value: str) -> bool:
    """Whether capitals, small letters and digits are mixed as no path, no symbol of C++ and no version mixes them."""
    if value.startswith(("_Z", "Z")) or "__" in value or HIDDEN in value:
        return False
    value = _UUID.sub("", value)
    kinds = (str.isupper, str.islower, str.isdigit)
    stretch = max(value.split("/"), key=len)
    return len(stretch) >= 20 and all(sum(map(kind, value)) >= 3 for kind in kinds)
