"""The commands in a line of shell that install packages: pip, uv, conda and mamba."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from gpudoctor.readers.files import _asked, _conda, _pip_words
from gpudoctor.readers.files._asked import Asked

_LONGEST = 20_000
_ENDS = frozenset(("&&", "||", ";", "|", "&", "(", ")", "\n", "then", "do", "else", "fi", "done", "{", "}"))
_CONDA = ("conda", "mamba", "micromamba")
_WORD = re.compile(r"[A-Za-z_]\w*=.*|sudo|exec|time|env|command|-\S+|RUN")
_FILE = re.compile(r"(?:-f|--file)(?:=|$)")
_BACKENDS = re.compile(r"cu\d{2,3}|cpu|rocm[\d.]+|xpu")


def commands(text: str) -> Iterator[list[str]]:
    """Each simple command of the text as its words; a text whose quotes do not close is taken apart at blanks."""
    lexer = shlex.shlex(text[:_LONGEST].replace("\n", " ; "), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        words = text[:_LONGEST].split()
    found: list[str] = []
    for word in words:
        if word in _ENDS or set(word) <= set(";&|()"):
            if found:
                yield found
            found = []
        else:
            found.append(word)
    if found:
        yield found


def installed(words: Sequence[str]) -> tuple[list[Asked], list[str]]:
    """What one command installs, and the files that it takes more from; nothing for any other command."""
    words = _without_front(words)
    if files := _of_project(words):
        return [], files
    tool, rest = _installer(words)
    if tool == "conda":
        return _by_conda(rest), []
    if not tool:
        return [], []
    options = _pip_words.Options()
    named = list(_pip_words.told(rest, options))
    found = [one for word in named if (one := _asked.asked(word))]
    if any(word.split("[")[0] == "." for word in [*named, *options.projects]):
        options.files.append("pyproject.toml")
    if _BACKENDS.fullmatch(options.backend):
        options.index = f"https://download.pytorch.org/whl/{options.backend}"
    return [replace(_asked.under(one, options), installer=tool) for one in found], options.files


def _without_front(words: Sequence[str]) -> list[str]:
    """Without variables, sudo and conda run in front, and the folder of the program."""
    rest = list(words)
    while rest and _WORD.fullmatch(rest[0]):
        rest = rest[1:]
    if rest[:2] in (["conda", "run"], ["micromamba", "run"]):
        rest = rest[2:]
        while rest and rest[0].startswith("-"):
            rest = rest[2:] if rest[0] in ("-n", "-p", "--name", "--prefix") else rest[1:]
    if rest:
        rest[0] = rest[0].rpartition("/")[2]
    return rest


def _installer(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The installer and the words behind ``install``; empty for any other command."""
    if len(words) > 2 and re.fullmatch(r"(?:python|pypy)[\d.]*", words[0]) and "-m" in words[:4]:
        words = words[list(words).index("-m") + 1 :]
    head = list(words[:3])
    if head[:1] and re.fullmatch(r"pip[\d.]*", head[0]) and "install" in words[:6]:
        return "pip", words[list(words).index("install") + 1 :]
    if head == ["uv", "pip", "install"]:
        return "uv", words[3:]
    if head[:2] == ["uv", "add"]:
        return "uv", words[2:]
    if head[:1] and head[0] in _CONDA and ("install" in head or "create" in head):
        return "conda", words[1:]
    return "", ()


def _of_project(words: Sequence[str]) -> list[str]:
    """The files of a project that a command installs as a whole: ``uv sync``, ``conda env create -f FILE``."""
    head = tuple(words[:3])
    if head[:2] == ("uv", "sync"):
        return ["uv.lock"]
    if head[:2] in (("poetry", "install"), ("pixi", "install")):
        return [f"{head[0]}.lock"]
    if head[:1] and head[0] in _CONDA and "env" in head:
        return [word.partition("=")[2] or after for word, after in pairwise([*words, ""]) if _FILE.match(word)]
    return []


def _by_conda(words: Sequence[str]) -> list[Asked]:
    channels: list[str] = []
    specs: list[str] = []
    rest = iter(words)
    for word in rest:
        name, _, value = word.partition("=")
        if name in ("-c", "--channel"):
            channels.append(value or next(rest, ""))
        elif word in ("-n", "--name", "-p", "--prefix", "-f", "--file", "--solver"):
            next(rest, "")
        elif not word.startswith("-") and word not in ("install", "create", "env"):
            specs.append(word)
    return [one for spec in specs if (one := _conda.asked(spec, channels))]
