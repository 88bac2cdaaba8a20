"""Secrets in text: passwords, tokens and keys, found by their shape or by the name that they are assigned to.

Whatever enters from outside passes `without_secrets` or `screened` once: the facts of a probe, the lines of a paste,
the documents of others, the output of a command. What is written later, into a view or a file, has no secret to lose.
All patterns run in time that grows with the length of the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from unicodedata import normalize

from gpudoctor.core.pattern import pattern

HIDDEN = "(hidden)"
_SHORT_CHARACTERS = 200
"""Texts up to this length come again and again in documents of many machines: whether they hold a mark is kept."""
Hide = Callable[[str], str]

_PREFIXES = (
    *("hf_", "api_org_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-", "glcbt-", "xoxa-"),
    *("xoxb-", "xoxe.", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "sk-", "sk_", "pk_", "rk_", "npm_", "pypi-"),
    *("dckr_pat_", "nvapi-", "wandb_v1_", "hvs.", "SG.", "gsk_", "r8_", "shpat_", "lin_api_", "dop_v1_", "ya29."),
    *("ABSK", "tskey-"),
)
_SHAPES = pattern(
    rf"(?<![A-Za-z0-9])(?:((?:{'|'.join(map(re.escape, _PREFIXES))})[A-Za-z0-9_-][\w.-]{{14,400}})"
    r"|AIza[\w-]{30,60}|(?:AKIA|ASIA|ABIA)[0-9A-Z]{16}|AGE-SECRET-KEY-1[0-9A-Z]{40,80}"
    r"|eyJ[\w-]{10,4000}(?:\.[\w-]{1,4000}){0,4}"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{20,100}|(?<=/api/webhooks/)\d{10,24}/[\w-]{40,100})"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[^-]|-(?!----END)){0,20000}(?:-----END [A-Z ]{0,30}-----)?"
)
_SHAPE_MARKS = (
    *(prefix.lower() for prefix in _PREFIXES if not prefix.startswith("xox")),
    *("xox", "aiza", "akia", "asia", "abia", "age-secret", "eyj", "hooks.slack", "/webhooks/", "private key-----"),
)
"""Lower case; a text without any has no secret that its shape gives away."""
_LOGIN = pattern(r"(?<=//)(?!git@)(?:[^\s/@\"'<>]{1,512}@){1,4}")
_CHANNEL = pattern(r"(?<=/t/)(?:[a-z]{2}-[0-9a-f-]{30,40}|(?=[\w-]{0,40}\d)[\w-]{20,80})(?=[/\s'\"]|\Z)")
"""The token in the address of a conda channel: ``conda.anaconda.org/t/TOKEN/name``."""
_SCHEME = pattern(r"\b((Bearer|Basic|Digest|Token|ApiKey)\s{1,4})([A-Za-z0-9._~+/=-]{8,4000})", re.IGNORECASE)
_SCHEMES = ("bearer", "basic", "digest", "token", "apikey")
_LETTERS = pattern(r"(?:hf_|gh[pousr]_|glpat-|sk-)[A-Za-z]{20,400}")
_COOKIE = pattern(r"\b((?:Set-)?Cookie\s{0,4}:\s{0,4})([^\r\n=]{1,200}=[^\r\n]{0,4000})", re.IGNORECASE)
_WHAT = (
    r"(?:token|secret|passw(?:or)?d|passphrase|pass|pwd|credentials?|api[_-]?key|access[_-]?key(?:[_-]?id)?|auth"
    r"|secret[_-]?key|private[_-]?key|signing[_-]?key|signature|sig|keys?|jwt|dsn)"
)
_VALUE = r"(?:\\?\"([^\"\r\n\\]{1,4000})|\\?'([^'\r\n\\]{1,4000})|([^\s\"',;&<>)\]}\\]{1,4000}))"
_ASSIGNED = pattern(rf"({_WHAT})(\\?['\"]?)\s{{0,4}}[=:](?![=:])\s{{0,4}}{_VALUE}", re.IGNORECASE)
_OPTION = pattern(rf"((?<=-){_WHAT})()\s{{1,4}}{_VALUE}", re.IGNORECASE)
"""``--token VALUE`` on a command line."""
_NETRC = pattern(r"(\blogin\s{1,4}\S{1,80}\s{1,4}password\s{1,4})(\S{1,400})", re.IGNORECASE)
_SHORT_OPTIONS = (
    (
        ("sshpass", "login", "mysql", "mariadb", "psql"),
        pattern(r"((?<=\s)-p\s{0,4})()([^\s'\"]{3,200}|'[^']{1,200}'|\"[^\"]{1,200}\")"),
    ),
    (
        ("curl", "wget", "http"),
        pattern(r"((?<=\s)(?:-u|-U|--user|--proxy-user)[ =]{1,4}['\"]?[^\s:'\"]{1,80}:)()([^\s'\"]{1,200})"),
    ),
)
"""Options that hold a password with these programs alone."""
_NAME_SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_LONGEST_NAME = 80
LONGEST_CACHED = 400
"""Characters of a text that is remembered."""
_ANYWHERE = pattern(r"(?:passw(?:or)?d|passphrase|secret|api_?key|token|credentials?)\Z", re.IGNORECASE)
"""Words that tell in the middle of a name, too: ``PGPASSWORD``, ``clientSecret``."""
_STRONG = pattern(
    r"passw(?:or)?d|passphrase|[_.-](?:pass|pwd|token|secret|key|keys|credentials?|auth|jwt|dsn|sig|signature)\Z|secret|"
    r"api_?key|access_?key|credentials?\Z",
    re.IGNORECASE,
)
"""Names that make any value a secret; what is given to others is one where it looks so."""
_PUBLIC = pattern(
    r"sig_|(?:pub|public)[_-]?key|p_?key\Z|(?:pad|bos|eos|unk|mask|sep|cls|next|stop|image)_token", re.IGNORECASE
)
"""Names that only sound so: ``sig_key`` of modinfo, InfiniBand's partition keys, tokens of a tokenizer."""
_OPEN = pattern(
    r"(?:none|null|true|false|yes|no|on|off|nan|required|missing|invalid|expired|authentication|failed|error|denied"
    r"|files|nis|str|int|bool|float|bytes|optional|\(hidden\)?@?|\*+|x+|\.+|<.*|\$.*|\d{1,6}|[/~].*|[a-z]:\\.*|.{1,2})\Z",
    re.IGNORECASE,
)
"""Values that are no secret, whatever they are given to."""
_SWITCH = pattern(r"(?:|true|false|yes|no|on|off|[01]|[/~].*)\Z", re.IGNORECASE)
"""What a variable with such a name may hold and be none."""
_CODE = pattern(r"(?:self|cls|os|args|config|cfg|kwargs|torch|np|tokenizer|outputs?|inputs?)\.\w")
_RANDOM = pattern(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[\w+/=~-]{12,}\Z")
_NAMED_MARKS = (
    "token",
    "secret",
    "pass",
    "pwd",
    "cred",
    "key",
    "auth",
    "sig",
    "jwt",
    "cookie",
    "dsn",
    "bearer",
    "basic",
    "digest",
)
_MARKS = (
    *_SHAPE_MARKS,
    *_NAMED_MARKS,
    *(program for programs, _ in _SHORT_OPTIONS for program in programs),
    "//",
    "\x1b",
)
"""Lower case; a line without any has no secret. Invisible characters are gone from lines before."""
_CREDENTIAL = pattern(
    r"TOKEN(?!S|I)|SECRET|CREDENTIAL|API_?KEY|PASS(?:WORD|WD|PHRASE|$|_(?!THROUGH))|(?:^|[_.])(?:KEYS?|AUTH|JWT|PWD|DSN)(?:[_.]|$)"
)
_LONG = pattern(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{40,20000}={0,2}(?![\w+/-])")
_UUID = pattern(r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}", re.IGNORECASE)
"""What stands for one by now, and mixes as much."""
_UNSEEN = pattern(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_])"  # what a terminal obeys
    r"|[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff]"
)
_BODY = pattern(r"[A-Za-z0-9+/]{16,80}={0,2}|(?:Proc-Type|DEK-Info):.*")


def without_secrets(text: str, hide: Hide = lambda _: HIDDEN) -> str:
    """The text with each secret replaced by `hide(secret)`; the rest is unchanged.

    One that is broken by colours or invisible characters is found, too: then the text is given without those.
    """
    if len(text) <= _SHORT_CHARACTERS and text.isascii() and not _has_mark(text):
        return text
    if ("\x1b" in text or not text.isascii()) and (bare := visible_ascii(text)) != text:
        found = without_secrets(bare, hide)
        return text if found == bare else found
    lower = text.lower()
    if any(mark in lower for mark in _SHAPE_MARKS):
        text = _SHAPES.sub(lambda match: hide(match[0]) if not match[1] or _is_token(match[1]) else match[0], text)
    if "//" in text:
        if "@" in text:
            text = _LOGIN.sub(lambda match: f"{hide(match[0])}@", text)
        if "/t/" in text:
            text = _CHANNEL.sub(lambda match: hide(match[0]), text)
    for programs, option in _SHORT_OPTIONS:
        if any(program in lower for program in programs):
            text = option.sub(lambda match: match[0] if _OPEN.match(match[3]) else match[1] + hide(match[3]), text)
    if any(mark in lower for mark in _NAMED_MARKS):
        if any(scheme in lower for scheme in _SCHEMES):
            text = _SCHEME.sub(lambda match: match[1] + (hide(match[3]) if _is_credential(match) else match[3]), text)
        if "cookie" in lower:
            text = _COOKIE.sub(lambda match: match[1] + hide(match[2]), text)
        if "=" in text or ":" in text:
            text = _ASSIGNED.sub(lambda match: _hide_assigned(match, hide), text)
        if "-" in text:
            text = _OPTION.sub(lambda match: _hide_assigned(match, hide), text)
        if "login" in lower and "password" in lower:
            text = _NETRC.sub(lambda match: match[1] + hide(match[2]), text)
    return text


@lru_cache(maxsize=1 << 13)
def _has_mark(text: str) -> bool:
    """Whether the text holds a mark without which nothing in it is a secret."""
    lower = text.lower()
    return any(mark in lower for mark in _MARKS)


def visible_ascii(text: str) -> str:
    """The text without invisible characters and escape sequences, wide and mathematical letters and digits as ASCII.

    Other characters that are not ASCII stay.
    """
    if text.isascii():
        return _UNSEEN.sub("", text) if "\x1b" in text else text
    return "".join(map(_ascii_letter, _UNSEEN.sub("", text)))


def _ascii_letter(character: str) -> str:
    """The character, as ASCII where it is a wide or mathematical letter or digit."""
    if character < "\u0080":
        return character
    normalized = normalize("NFKC", character)
    return normalized if len(normalized) == 1 and normalized.isascii() and normalized.isalnum() else character


def without_secret_lines(lines: Sequence[str]) -> list[str]:
    """The same number of lines without secrets; also a private key over several lines is hidden."""
    whole = "\n".join(lines).lower()
    marks = [mark for mark in _MARKS if mark in whole]
    found: list[str] = []
    inside = False
    for line in lines:
        inside = continues_key(line, inside)
        if inside:
            found.append(HIDDEN if line.strip() else line)
        else:
            lower = line.lower()
            found.append(without_secrets(line) if any(mark in lower for mark in marks) else line)
        inside = is_key_open(line, inside)
    return found


def continues_key(line: str, inside: bool) -> bool:
    """Whether the line goes on with a private key; False unless `inside`: one is open above it."""
    return inside and (" " not in line.strip() or "-----END" in line or bool(_BODY.fullmatch(line.split()[-1])))


def is_key_open(line: str, inside: bool) -> bool:
    """Whether a private key is open below the line: it begins here or (`inside`) above, and does not end here."""
    return (inside or ("-----BEGIN" in line and "PRIVATE KEY-----" in line)) and "-----END" not in line


def without_long(text: str, hide: Hide) -> str:
    """The text with each random-looking run of 40 or more letters, digits and ``+/_-`` replaced by `hide(run)`."""
    return _LONG.sub(lambda match: hide(match[0]) if _looks_random(match[0]) else match[0], text)


def variable_shown(name: str, value: str) -> str:
    """The value of an environment variable without secrets; "(hidden)" where the name is a credential's.

    Behind such a name a switch (``true``, ``0``) or a path is no secret.
    """
    if _CREDENTIAL.search(name.upper()) and not _PUBLIC.search(name) and not _SWITCH.match(value):
        return HIDDEN
    return without_secrets(value)


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Values of variables with a credential's name, long enough to hide anywhere: 20 characters, or 8 with a digit and
    a letter; no path, number or word such as ``true``. The longest first.
    """
    found = {
        value
        for name, value in environ.items()
        if _CREDENTIAL.search(name.upper()) and len(value) >= 8 and not _OPEN.match(value)
        if len(value) >= 20 or (any(map(str.isdigit, value)) and any(map(str.isalpha, value)))
    }
    return tuple(sorted(found, key=len, reverse=True))


def is_secret_entry(name: object, item: object) -> bool:
    """Whether the name (``api_key``) makes that text a secret; False for ``none``, ``true``, a path and the like."""
    return isinstance(item, str) and isinstance(name, str) and _is_secret_name(name) and not _OPEN.match(item)


@lru_cache(maxsize=1 << 10)
def _is_secret_name(name: str) -> bool:
    """Whether the name alone makes its value a secret (``api_key``); cached."""
    return len(name) <= _LONGEST_NAME and bool(_STRONG.search(name)) and not _PUBLIC.search(name)


def _is_token(run: str) -> bool:
    """Whether text with the prefix of a service's tokens is one: it has a digit, or (``hf_``, ``ghp_`` and its
    siblings, ``glpat-``, ``sk-`` only) 20 or more letters and nothing else behind the prefix.
    """
    return any(map(str.isdigit, run)) or bool(_LETTERS.fullmatch(run))


def _is_credential(match: re.Match[str]) -> bool:
    """Whether what follows a scheme (``Bearer``, ``Basic``) looks like a credential: random letters and digits.

    After Bearer or ``Authorization`` anything does that is not one short word.
    """
    value = match[3]
    if match[2].lower() == "bearer" or "uthorization" in match.string[max(0, match.start() - 20) : match.start()]:
        return not value.isalpha() or len(value) >= 20
    return bool(_RANDOM.match(value))


def _hide_assigned(match: re.Match[str], hide: Hide) -> str:
    """The assignment with its value hidden, where the whole name before it and the value make it a secret."""
    before = match.string[max(0, match.start() - _LONGEST_NAME) : match.start()]
    lead = before[len(before.rstrip(_NAME_SIGNS)) :]
    word = match[1]
    if lead[-1:].isalpha() and not (_ANYWHERE.match(word) or (lead[-1:].islower() and word[:1].isupper())):
        return match[0]  # a part of another word
    value = match[3] or match[4] or match[5]
    if _OPEN.match(value):
        return match[0]
    behind = match.string[match.end() : match.end() + 1]
    if match[5] and ("(" in value or "[" in value or behind in ("(", "[") or _CODE.match(value)):
        return match[0]
    whole = match[0].removesuffix(value)
    if word == "auth" and match[2] and len(value) >= 8:  # of docker's config.json
        return whole + hide(value)
    return whole + _hide_if_secret(lead + word, value, hide)


def _hide_if_secret(name: str, value: str, hide: Hide) -> str:
    """`hide(value)` where the name is a secret's or the value looks random, else the value.

    A public name (``public_key``) or a harmless value (``none``, a path, a short number) is never hidden.
    """
    if _OPEN.match(value) or _PUBLIC.search(name):
        return value
    return hide(value) if _STRONG.search(name) or _RANDOM.match(value) else value


def _looks_random(value: str) -> bool:
    """Whether capitals, small letters and digits mix as in keys, not as in paths, symbols or versions."""
    if value.startswith(("_Z", "Z")) or "__" in value or HIDDEN in value:
        return False
    value = _UUID.sub("", value)
    kinds = (str.isupper, str.islower, str.isdigit)
    stretch = max(value.split("/"), key=len)
    return len(stretch) >= 20 and all(sum(map(kind, value)) >= 3 for kind in kinds)
