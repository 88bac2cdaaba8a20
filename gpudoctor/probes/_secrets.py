"""Values that must never become facts: passwords, tokens, keys."""

from __future__ import annotations

from gpudoctor.model.pattern import pattern

HIDDEN = "(hidden)"

_NAME = pattern(
    r"TOKEN|SECRET|CREDENTIAL|APIKEY|PASS(?:WORD|WD|PHRASE)?(?:[_.]|$)"
    r"|(?:^|[_.])(?:KEY|KEYS|AUTH|JWT|PWD)(?:[_.]|$)"
)
_VALUE = pattern(
    r"//[^/\s:@]*:[^/\s@]+@"  # a password in a URL
    r"|\b(?:hf|gh[pousr]|sk|pk|glpat|xox[abps]|npm|pypi|dckr_pat)[-_][A-Za-z0-9_-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\beyJ[A-Za-z0-9_-]{16,}|-----BEGIN |(?i:password|passwd|secret|token|api_?key)\s*[=:]"
)


def shown(name: str, value: str) -> str:
    """The value, or a word in its place where its name or shape smells of a secret."""
    return HIDDEN if _NAME.search(name.upper()) or _VALUE.search(value) else value


def shown_words(line: str) -> str:
    """A command line with the values of its ``name=value`` words screened."""
    words = []
    for word in line.split():
        name, sign, value = word.partition("=")
        words.append(f"{name}={shown(name, value)}" if sign else shown("", word))
    return " ".join(words)


def without_tokens(text: str) -> str:
    """The text with tokens, and passwords in URLs, replaced; it stays a text of the same lines."""
    return _TOKEN.sub(HIDDEN, _LOGIN.sub(rf"//{HIDDEN}@", text))


_LOGIN = pattern(r"//[^/\s:@]*:[^/\s@]+@")
_TOKEN = pattern(
    r"\b(?:hf|gh[pousr]|sk|pk|glpat|xox[abps]|npm|pypi|dckr_pat)[-_][A-Za-z0-9_-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\beyJ[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]+)*"
)
