"""Names of hosts, users and files: which are somebody's, and the same text with each of them replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from gpudoctor.app.redaction.name_patterns import (
    ACCOUNTS,
    PLAIN_FILE_WORDS,
    SUFFIXES,
    Ledger,
    is_file,
    is_public_host,
    is_replacement,
    vocabulary,
)
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.snapshot import Snapshot

_SHORTEST_USER = 4
"""Characters of a user's name below which it is hidden only where a user must stand: ``al`` is part of anything."""
_MOST_PARTS = 9
"""Words joined by dots and hyphens of the longest name that is looked for as a whole."""
_RUN = re.compile(r"[^\W_]+(?:[-_.]+[^\W_]+)*")
_JOINT = re.compile(r"([-_.]+)")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[\w-]{0,62})(?:\.[A-Za-z0-9][\w-]{0,62})*\.?\Z")
_NUMBER = re.compile(r"[\d.:x-]*\Z")


class Names:
    """Names of hosts, users, domains and more that were learnt, and their replacements."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kind_by_name: dict[str, str] = {}
        """Their kinds, by the names in small letters; those that are hidden wherever they stand."""
        self._first_parts: set[str] = set()
        self._replaced_by_run: dict[str, str] = {}
        self._phrases: dict[str, str] = {}

    def learn(self, kind: str, name: str) -> None:
        """Hide that name from now on wherever it stands, unless it identifies nobody, is a common word or a file's
        name, or is too short.

        Of a host's full name its label and domain are learnt, too; a name with blanks as a phrase.
        """
        low = name.lower().rstrip(".")
        if low in self._kind_by_name or identifies_nobody(kind, low) or not _is_distinct(kind, low):
            return
        if re.search(r"\s", low):
            self._phrases[low] = kind
            return
        self._kind_by_name[low] = kind
        if kind == "host" and "." in low:
            label, _, domain = low.partition(".")
            self.learn("host", label)
            self.learn("domain", domain)
        self._first_parts.add(_JOINT.split(low)[0])
        self._replaced_by_run.clear()

    def word(self, kind: str, name: str) -> str:
        """The replacement of a name of that kind; the name itself if it identifies nobody."""
        lowered = name.lower().rstrip(".")
        if identifies_nobody(kind, lowered):
            return name
        if kind == "host":
            return self._host(lowered)
        if kind == "domain":
            return self._domain(lowered)
        return self._ledger.word(kind, lowered)

    def _host(self, low: str) -> str:
        """Replacement of a host name in lower case, ``host1.domain1.example``; one of two parts, such as ``firm.com``,
        is taken for a domain unless it ends in one of `SUFFIXES`.
        """
        label, _, domain = low.partition(".")
        if domain and "." not in domain and domain not in SUFFIXES:
            return low if label == "example" else self._domain(low)
        word = label if label in ACCOUNTS or is_replacement(label) else self._ledger.word("host", label)
        return f"{word}.{self._domain(domain)}" if domain else word

    def _domain(self, domain: str) -> str:
        """Replacement of a domain, ``domain1.example``; suffixes that every private network has are kept."""
        if domain.endswith(".example") and is_replacement(domain.removesuffix(".example")):
            return domain
        suffix = next((end for end in SUFFIXES if domain == end or domain.endswith(f".{end}")), "")
        if domain == suffix:
            return domain
        return f"{self._ledger.word('domain', domain)}.{suffix or 'example'}"

    def hide(self, text: str) -> str:
        """The text with every learnt name replaced where it is a whole word, in capital or small letters; a name with
        blanks wherever it stands.
        """
        for phrase, kind in self._phrases.items():
            if phrase in text.lower():
                text = re.sub(re.escape(phrase), self.word(kind, phrase), text, flags=re.IGNORECASE)
        if "[" in text:
            text = HOSTS.sub(self._replace_host_set, text)
        return _RUN.sub(self._replace_run, text) if self._kind_by_name else text

    def _replace_host_set(self, match: re.Match[str]) -> str:
        """A set of hosts, ``node[1-3]``, with each replaced if one of them is known; else unchanged: ``args[0]``."""
        names = expanded(match)
        if self._kind_by_name.keys().isdisjoint(name.lower() for name in names):
            return match[0]
        return folded(self.word("host", name) for name in names)

    def _replace_run(self, match: re.Match[str]) -> str:
        """A run of words joined by dots and hyphens, with known names in it replaced; cached."""
        run = match[0]
        replaced = self._replaced_by_run.get(run)
        if replaced is None:
            replaced = self._replaced_by_run[run] = self._with_names_replaced(run)
        return replaced

    def _with_names_replaced(self, run: str) -> str:
        """The run with the longest known names in it replaced."""
        low = run.lower()
        parts = _JOINT.split(low)
        if len(low) != len(run) or self._first_parts.isdisjoint(parts):
            return run
        out, place, at = [], 0, 0
        while place < len(parts):
            length = self._longest_name(parts, place)
            size = sum(map(len, parts[place : place + max(1, length)]))
            piece = run[at : at + size]
            out.append(self.word(self._kind_by_name[piece.lower()], piece) if length else piece)
            place, at = place + max(1, length), at + size
        return "".join(out)

    def _longest_name(self, parts: list[str], place: int) -> int:
        """How many of `parts`, from `place` on, are the longest known name; 0 if none begins there."""
        if parts[place] not in self._first_parts:
            return 0
        most = min(len(parts), place + 2 * _MOST_PARTS)
        return next(
            (end - place for end in range(most, place, -1) if "".join(parts[place:end]) in self._kind_by_name), 0
        )


def identifies_nobody(kind: str, low: str) -> bool:
    """True for an account of every system, a number, a public site, what cannot be a host's name (kind ``host``), an
    empty name, or a replacement word.

    Of the kind ``cloud`` only for the last two.
    """
    if kind == "cloud":
        return not low or is_replacement(low)
    if not low or low in ACCOUNTS or _NUMBER.match(low) or is_replacement(low):
        return True
    if kind == "domain":
        return low in SUFFIXES or is_public_host(low) or is_replacement(low.removesuffix(".example"))
    return kind == "host" and (not _HOST.match(low) or is_public_host(low) or is_replacement(low.partition(".")[0]))


def _is_distinct(kind: str, low: str) -> bool:
    """True if the name can be replaced wherever it stands: long enough, no common word, no file."""
    if is_word(low) or is_file(low):
        return False
    if kind in {"host", "switch"}:
        return len(low) >= _SHORTEST_USER or (len(low) > 1 and bool(re.search(r"\d", low)))
    return len(low) >= _SHORTEST_USER


def is_word(name: str) -> bool:
    """True if all its parts are words of our own pages: ``memory``, ``nvidia-ctk``."""
    return all(part in vocabulary() for part in _JOINT.split(name.lower())[::2])


def learnable(name: str) -> bool:
    """True if it can be a host's name: neither a file nor a variable."""
    return bool(_HOST.match(name)) and not is_file(name) and not ("_" in name and name.isupper())


# ---- Many hosts in one word, as Slurm and ClusterShell write them ----
# ``node[01-08,12]``, ``login1,gpu[3-4].site``.

_MOST_HOSTS = 4096
"""Hosts that one word is taken apart into; of more, its first ones."""
HOSTS = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,60})\[(\d{1,6}(?:[-,]\d{1,6}){0,400})\]((?:[.-]?[\w-]{1,60}){0,4})")
_LIST = re.compile(
    r"(?:nodelist|node_list|nodename|nodes|hosts|hostlist|--?w|--hosts|--exclude)[=\s:]{1,3}['\"]?"
    r"([A-Za-z][\w.,\[\]-]{1,4000})",
    re.IGNORECASE,
)
_OURS = re.compile(r"(\D*)(\d+)(\D.*)?")


def hosts_in_lists(text: str) -> Iterator[str]:
    """Every host in the host lists of the text (``--nodelist=node[01-04],login1``).

    A name that stands alone is no list: whether it is a host's is for others to tell.
    """
    for match in _LIST.finditer(text):
        parts = re.split(r",(?![^\[]*\])", match[1].rstrip(",."))
        for part in parts:
            if host_set := HOSTS.fullmatch(part):
                yield from expanded(host_set)
            elif len(parts) > 1 and learnable(part) and not is_word(part):
                yield part


def expanded(match: re.Match[str]) -> list[str]:
    """The hosts of a matched set, at most `_MOST_HOSTS`: ``node[01-03]`` is node01, node02, node03."""
    head, numbers, tail = match.groups()
    names: list[str] = []
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        end = min(int(last or first), int(first) + _MOST_HOSTS)
        names += [f"{head}{number:0{len(first)}d}{tail}" for number in range(int(first), end + 1)]
    return names[:_MOST_HOSTS]


def folded(names: Iterable[str]) -> str:
    """The host names as a set, ``host[1-3]`` for host1, host2 and host3."""
    alike: dict[tuple[str, str], list[int]] = {}
    for word in dict.fromkeys(names):
        match = _OURS.fullmatch(word)
        head, number, tail = match.groups(default="") if match else (word, "", "")
        alike.setdefault((head, tail), []).extend([int(number)] if number else [])
    return ",".join(_folded_range(head, sorted(numbers), tail) for (head, tail), numbers in alike.items())


def _folded_range(head: str, numbers: Sequence[int], tail: str) -> str:
    """One name, or a set of the sorted numbers between head and tail."""
    if len(numbers) < 2:
        return f"{head}{numbers[0] if numbers else ''}{tail}"
    begun: list[list[int]] = []
    for number in numbers:
        if begun and number == begun[-1][1] + 1:
            begun[-1][1] = number
        else:
            begun.append([number, number])
    ranges = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in begun)
    return f"{head}[{ranges}]{tail}"


# ---- Names of the files that a report is about ----
# A person may have named them after himself, a firm or a project.

_FILE_PARTS = re.compile(r"[^A-Za-z]+")
_DESCRIBED = " on the machine that you described"


class Files:
    """Learns names of report files, and replaces them by ``file1.txt``; a plain name only loses its folder."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._words: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn(self, value: object) -> None:
        """Learn the file names of the pasted reports in a diagnosis, a snapshot, or a list of such.

        A name of common words only loses its folder; any other is replaced, its ending kept.
        """
        for name in _report_file_names(value):
            base = PurePath(name.replace("\\", "/")).name
            if name in self._words or not base.strip("-."):
                continue
            plain = all(part.lower() in PLAIN_FILE_WORDS for part in _FILE_PARTS.split(base) if part)
            if plain:
                if base != name:
                    self._words[name] = base
                continue
            suffix = PurePath(base).suffix if re.fullmatch(r"\.[a-z]{1,12}", PurePath(base).suffix) else ""
            word = self._ledger.word("file", name, lambda number, end=suffix: f"file{number}{end}")  # type: ignore[misc]
            self._words.update({name: word, base: word})
        longest = sorted(self._words, key=len, reverse=True)
        if longest:
            either = "|".join(map(re.escape, longest))
            self._pattern = re.compile(rf"(?<![\w.-])(?:{either})(?![\w-])")

    def hide(self, text: str) -> str:
        """The text with the file names of reports that were learnt replaced."""
        return self._pattern.sub(lambda match: self._words[match[0]], text) if self._pattern else text


def _report_file_names(value: object) -> Iterator[str]:
    """File names of the pasted reports that a diagnosis, a snapshot or a list of such is about."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _report_file_names(item)
    elif isinstance(value, Diagnosis):
        yield from _report_file_names(value.snapshot)
    elif isinstance(value, Snapshot) and value.target.kind == "report":
        whole = value.target.name.removesuffix(_DESCRIBED)
        yield from (name for part in whole.split(", ") if (name := part.strip()))
