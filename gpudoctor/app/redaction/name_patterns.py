"""Where a name must stand: below /home, before an @, in a line of syslog. What stands there is the name.

Each pattern has one group or more, each of which is a name of the kind that it is listed under. A pattern is looked for
only where one of its needles is in the text, in small letters. The words that name nobody stand here, too,
and the `Ledger` of words that are put in place of names: the same thing has the same word everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpudoctor.core import shipped
from gpudoctor.core.language import say
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog

_PART = r"""[^\s/\\:;,"'`()<>\[\]{}|=&?#*$%@]{1,64}"""
"""One folder of a path."""
_HOSTS = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9][A-Za-z0-9_-]{0,62}){0,8}"
_TLDS = (
    "com|org|net|edu|gov|mil|int|arpa|internal|local|localdomain|lan|corp|intra|intranet|private|cluster|example|ai|io"
    "|de|fr|uk|nl|ch|at|it|es|se|no|fi|dk|pl|cz|eu|us|ca|au|nz|jp|cn|kr|tw|in|sg|br|il|ru|hpc|dev|cloud|tech|gmbh"
)


_WORDS = {
    heading[2:].partition(":")[0]: frozenset(words.split())
    for block in shipped.text("app/redaction/words.txt").split("\n\n")
    for heading, _, words in [block.partition("\n")]
}


@dataclass(frozen=True, slots=True)
class Span:
    """A name of that kind at `start:end` in a text; not `sure` where a word of prose may stand there."""

    start: int
    end: int
    kind: str
    sure: bool = True


@dataclass(frozen=True, slots=True)
class _Place:
    """A pattern whose groups are names of that kind, searched where one of its needles is in the text."""

    kind: str
    sure: bool
    needles: tuple[str, ...]
    pattern: re.Pattern[str]


def _place(kind: str, needles: str, pattern: str) -> _Place:
    """A place by kind, needles (separated by blanks) and pattern; ``?`` after the kind: prose may stand there."""
    return _Place(
        kind.rstrip("?"),
        not kind.endswith("?"),
        tuple(needles.split()),
        re.compile(pattern, re.IGNORECASE | re.MULTILINE),
    )


_PLACES: Sequence[_Place] = (
    _place("user", "/home /users", rf"/(?:home\d*|homes|Users)/({_PART})"),
    _place(
        "user", "users documents", rf"[\\/](?:Users|Documents and Settings)[\\/]{{1,4}}({_PART}(?: {_PART}(?=\\))?)"
    ),
    _place("user", "torchinductor_", r"(?-i:torchinductor_)([A-Za-z][\w.-]{1,31}?)(?![\w.-])"),
    _place("user", "user= logname= username=", rf"(?<![A-Za-z])(?:[A-Z]+_)?(?:USER|USERNAME|LOGNAME)=['\"]?({_PART})"),
    _place("user", "user", rf"['\"](?:user|username|login|owner)\\?['\"]\s{{0,4}}:\s{{0,4}}\\?['\"]({_PART})"),
    _place(
        "user?", "user owner login", rf"^\s{{0,8}}(?:user|username|login|owner)\s{{0,20}}:\s{{0,8}}({_PART})\s{{0,8}}$"
    ),
    _place("user", "userid=", rf"\bUserId=({_PART})"),
    _place("user?", "user", rf"(?:for|invalid|opened for) user ({_PART})"),
    _place("user", "requested-by", rf"Requested-By: ({_PART})"),
    _place("user", "sudo", rf"\bsudo\s+-u\s+({_PART})"),
    _place("user", "uid= gid= groups=", rf"\b[ug]id=\d+\(({_PART})\)"),
    _place("user", "~", r"(?<![\w~/.])~([A-Za-z_][\w.-]{1,31})(?=/)"),
    _place("host", "//", rf"//(?:[^\s/@]{{0,256}}@)?({_HOSTS})(?=[:/?#\s\"'>)\],;]|\Z)"),
    _place("host", "@", rf"\b\d{{2,5}}@({_HOSTS})"),
    _place("host", "nccl", rf"(?<![\w.-])({_HOSTS}):\d+:\d+ \[\d+\]"),
    _place(
        "host",
        ":",
        r"^\W{0,3}(?:[A-Z][a-z]{2}\s{1,2}\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,]{8,18}(?:Z|[+-][\d:]{4,5})?)"
        rf"\s({_HOSTS})\s(?:kernel|[\w./@-]{{1,64}}(?:\[\d+\])?):",
    ),
    _place(
        "host?",
        "hostname= computername= master_addr= nodename= nodeaddr= host= nodelist=",
        r"(?<![A-Za-z])(?:[A-Z0-9_]{0,24}_)?(?:HOST|HOSTNAME|COMPUTERNAME|NODENAME|NODE_NAME|NODEADDR|MASTER_ADDR"
        rf"|NodeHostName|BatchHost|NodeList)=['\"]?({_HOSTS})(?![\w.-]*[(\[/])",
    ),
    _place(
        "host?",
        "host node servername pod_name",
        r"(?<![A-Za-z])(?:[A-Z0-9_]{0,24}_)?(?:HOST|HOSTNAME|COMPUTERNAME|NODE|NODENAME|NODE_NAME|NODEADDR|MASTER_ADDR"
        r"|NodeHostName|BatchHost|ReqNodeList|servername|pod_name|nodelist|host|node)"
        rf"['\"]?\s{{0,8}}[=:](?!=|:)\s{{0,8}}['\"]?({_HOSTS})(?![\w.-]*[(\[/])",
    ),
    _place("host?", "host node", rf"\b(?:on (?:the )?(?:host|node|machine)|from host|to host|hostname) ({_HOSTS})"),
    _place("host?", "resolve", rf"resolve (?:host(?:name)?:? )?['\"]?({_HOSTS})"),
    _place("host", "srun slurmstepd", rf"\bsrun: error: ({_HOSTS}): "),
    _place("host?", "ssh", rf"\bssh:? (?:-\w+ )*(?:connect to host )?({_HOSTS})(?=\s|\Z|:)"),
    _place("host?", "connection", rf"\bconnect(?:ion|ed|ing)? (?:to|from) ({_HOSTS})(?::\d+|[ ,]| closed)"),
    _place("host?", "linux ", rf"\bLinux ({_HOSTS}) \d+\.\d+"),
    _place("host?", "hca- mlx", rf"['\"]?({_HOSTS}) (?:HCA-\d|mlx\d_\d)"),
    _place("host?", "pod/ hostname=", rf"(?:pods?/|kubernetes\.io/hostname=)({_HOSTS})"),
    _place("host", "macbook imac mac-", r"\b([\w-]{1,40}-(?:MacBook|iMac|Mac)[\w-]{0,30})"),
    _place("host", "desktop- laptop- win-", r"\b((?:DESKTOP|LAPTOP|WIN)-[A-Z0-9]{6,15})\b"),
    _place("host", "ip-", r"\b(ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[a-z][a-z0-9-]{0,30}){0,4})\b"),
    _place("host", "\\\\", r"(?<![\w\\:])\\{2,4}([A-Za-z][\w.-]{1,62})\\{1,2}[\w$]"),
    _place("cloud", "projects/", r"(?<![\w/~-])projects/([a-z][a-z0-9-]{3,40})(?=/)"),
    _place("cloud", "googleapis.com", r"googleapis\.com/(?:[\w.-]{1,40}/){0,4}projects/([a-z][a-z0-9-]{3,40})"),
    _place("cloud", "arn:", r"\barn:aws[\w-]{0,10}:([^\s\"',;]{3,300})"),
    _place("cloud", "i-", r"(?<![\w-])i-((?:[0-9a-f]{17}|[0-9a-f]{8})\b)"),
    _place("cloud", "resourcegroups/", rf"resourceGroups/({_PART})"),
    _place("cloud", "account", r"account(?:[ _-]?id)?['\"]?\s{0,4}[=:]?\s{0,4}['\"]?(\d{12})\b"),
)

_MARKED = re.compile(
    r"[/@=:~\\-]|user|login|host|node|nccl|resolve|srun|ssh|connection|linux|hca|mlx|account|uid|user|owner|requested"
)
"""Without one of these no needle is in a text."""
_MAIL = re.compile(rf"(?<![\w.+-])([A-Za-z_][\w.+-]{{0,63}})@({_HOSTS})(?![\w-])")
_BUILDERS = frozenset({"dvs-builder", "buildd", "mockbuild", "builder", "makepkg"})
"""Who built a kernel or a driver, at its maker's."""
_UNITS = re.compile(r"\.(?:service|slice|scope|mount|timer|socket|target)\Z|^tty\d*\Z")
_FQDN = re.compile(rf"(?<![\w.@/-])({_HOSTS}\.(?:{_TLDS}))(?![\w-]|\.[A-Za-z0-9])", re.IGNORECASE)
_MODULES = re.compile(r"(?:torch|torchvision|scipy|numpy|skimage|threading|tensorflow|jax|sklearn|multiprocessing)\.")
_WORDS_TOO = ("ai", "io", "in", "it", "no")
_PATH = re.compile(rf"(?<![\w.\\/-])(?:[A-Za-z]:)?(?:file://)?/{_PART}(?:/{_PART}){{0,40}}")
_HOMES = frozenset({"home", "homes", "users", "people"})
_SCRATCH = _WORDS["scratch"]
_OWN = _WORDS["own"]
"""What stands in the home folder of a user."""


def spans(text: str) -> Iterator[Span]:
    """Every name in the text that stands where a name must, in any order; spans may overlap."""
    low = text.lower()
    for place in _PLACES if _MARKED.search(low) else ():
        if any(needle in low for needle in place.needles):
            for match in place.pattern.finditer(text):
                for group in range(1, len(match.groups()) + 1):
                    yield Span(match.start(group), match.end(group), place.kind, place.sure)
    if "/" in text:
        yield from _users_in_paths(text)
    if "@" in text:
        yield from _logins(text)
    if "." in text:
        yield from (Span(match.start(1), match.end(1), "host") for match in _FQDN.finditer(text) if _is_host(match[1]))


def _is_host(name: str) -> bool:
    """True if a name with dots is a host: no file, Python module or public site."""
    if is_file(name) or is_public_host(name) or _MODULES.match(name) or "_" in name:
        return False
    return name.count(".") > 1 or name.lower().rpartition(".")[2] not in _WORDS_TOO


def _logins(text: str) -> Iterator[Span]:
    """User and host of ``jdoe@node17`` and of e-mail addresses."""
    for match in _MAIL.finditer(text):
        if match[1] in _BUILDERS or (is_public_host(match[2]) and match[1] == "git"):
            continue
        if _UNITS.search(match[2]) or re.fullmatch(r"[\d.]+", match[2]):
            continue
        yield Span(match.start(1), match.end(1), "user")
        yield Span(match.start(2), match.end(2), "host")


def _users_in_paths(text: str) -> Iterator[Span]:
    """The folders in paths that are named after users or groups."""
    for match in _PATH.finditer(text):
        at = match.start()
        parts = match[0].split("/")
        for place, part in enumerate(parts):
            if _is_personal(parts, place):
                yield Span(at, at + len(part), "user")
            at += len(part) + 1


def _is_personal(parts: Sequence[str], place: int) -> bool:
    """True if the part of a path at index `place` is named after a user or group, by the folders around it."""
    part = parts[place]
    if place < 2 or not part or part.lower() in FOLDERS | SHELVES:
        return False
    above, below = parts[place - 1].lower(), parts[place + 1] if place + 1 < len(parts) else ""
    if part.startswith("."):
        return False
    if above in _HOMES or below.lower() in _OWN:
        return True
    return not is_file(part) and _is_on_scratch(parts, place)


def _is_on_scratch(parts: Sequence[str], place: int) -> bool:
    """True if only folders for many users stand above that part of a path, the first of them on shared storage."""
    tops = [part.lower().rstrip("0123456789") for part in parts[1:place]]
    if not tops or tops[0] not in _SCRATCH or tops[0] == "tmp":
        return False
    return all(top in SHELVES | _SCRATCH for top in tops)


# ---- Words that name nobody: accounts of every system, folders of every disk, hosts that all the world uses ----

ACCOUNTS = _WORDS["accounts"]
"""Names that say nothing about anybody, and may be words of any path."""

FOLDERS = _WORDS["folders"]
"""Folders beside those of users, below which no user's is looked for."""

SHELVES = _WORDS["shelves"]
"""Folders that hold the folders of users, or more of such."""

DOMAINS = _WORDS["domains"]
"""Sites that are the same for everybody, with all hosts below them."""

PLAIN_FILE_WORDS = _WORDS["files"]
"""Words of file names that tell of nobody."""

SUFFIXES = ("svc.cluster.local", "cluster.local", "localdomain", "local", "internal", "lan", "test", "invalid")
"""Ends of names that every private network has; what stands before them is hidden, they stay."""

_WORD = re.compile(r"[^\W_]+")
_CLOUD_STORES = ("s3.amazonaws.com", "storage.googleapis.com")
_FILE = re.compile(
    r"\.(?:py|pyc|pyi|so|txt|log|json|ya?ml|toml|cfg|conf|ini|sh|csv|tsv|pt|pth|bin|whl|md|html?|tar|t?gz|zip|zst|xz"
    r"|deb|rpm|run|sif|sqsh|err|out|c|cc|cpp|cu|cuh|h|hpp|ko|service|socket|slice|scope|mount|safetensors|parquet"
    r"|d|list|sources|repo|lock|dll|exe|lib|a|o|js|ts|rs|go|java|ipynb|pem|key|pub|svg|png|jpe?g|pdf|xml)(?:\.\d+)*\Z",
    re.IGNORECASE,
)


def is_file(name: str) -> bool:
    """True if the name ends like a file's, such as in ``.py``."""
    return bool(_FILE.search(name))


def is_public_host(name: str) -> bool:
    """True if it is a public site, or a host of one; a bucket of a cloud store is not."""
    labels = name.lower().rstrip(".").split(".")
    if ".".join(labels[-3:]) in _CLOUD_STORES:  # whose first label is somebody's bucket
        return len(labels) == 3
    return any(".".join(labels[place:]) in DOMAINS for place in range(len(labels)))


@lru_cache(maxsize=1)
def vocabulary() -> frozenset[str]:
    """Every word of our own rules, of the names, meanings and units of facts, and of the lists of accounts and folders,
    in lower case; cached.

    A name that is such a word is hidden only where a name must be.
    """
    words: set[str] = set(ACCOUNTS | FOLDERS | SHELVES)
    book = rulebook.load()
    for rule in (*book.rules, *book.cluster):
        texts = [rule.id, rule.title, rule.finding, rule.why, rule.misses, rule.confirm, rule.layer]
        texts += [proof.finding for proof in rule.proofs] + [detail.says for detail in rule.details]
        for fix in rule.fixes:
            texts += [fix.title, fix.undo, *(word for step in fix.steps for word in (*step.argv, step.text))]
        for text in texts:
            words.update(_WORD.findall(text.lower()))
    for spec in catalog().specs.values():
        words.update(_WORD.findall(f"{spec.name} {spec.about.partition(':')[0]} {spec.unit}".lower()))
    return frozenset(words)


# ---- Words that stand for names ----

NAMES: dict[str, tuple[str, str]] = {
    "host": ("host name", "host names"),
    "user": ("user", "users"),
    "domain": ("domain", "domains"),
    "switch": ("switch", "switches"),
    "file": ("file name", "file names"),
    "cloud": ("cloud account or instance", "cloud accounts and instances"),
    "uuid": ("UUID", "UUIDs"),
    "serial": ("serial number", "serial numbers"),
    "guid": ("GUID", "GUIDs"),
    "mac": ("hardware address", "hardware addresses"),
    "address": ("network address", "network addresses"),
    "hex": ("long number", "long numbers"),
    "secret": ("secret", "secrets"),
    "command": ("command line", "command lines"),
}
"""Kinds of what is hidden, one and several of them, in the order in which they are told."""

_OURS = re.compile(r"\b(?:host|user|domain|switch|file|cloud)\d{1,6}\b")
"""No hyphen in them: where nothing but words tells what a text is about, ``user`` alone would be one of them."""


def is_replacement(word: str) -> bool:
    """True if it is a word that a Ledger gives (``host1``), so that sharing twice changes nothing more."""
    return bool(_OURS.fullmatch(word))


class Ledger:
    """The replacement words given so far, and how many things of each kind they stand for."""

    def __init__(self) -> None:
        self._word_by_thing: dict[tuple[str, str], str] = {}
        self._last_number: dict[str, int] = {}
        self._reserved: set[str] = set()

    def reserve(self, text: str) -> None:
        """From now on, give no replacement word (``host1``) that the text contains already."""
        self._reserved.update(_OURS.findall(text))

    def word(self, kind: str, original: str, numbered: Callable[[int], str] | None = None, series: str = "") -> str:
        """The replacement of that original, the same each time; `numbered` makes the nth, by default ``host1``.

        Numbers count within `series`, by default the kind.
        """
        word = self._word_by_thing.get((kind, original))
        if word is None:
            word = self._new_word(original, kind, series or kind, numbered)
            self._word_by_thing[kind, original] = word
        return word

    def _new_word(self, original: str, kind: str, series: str, numbered: Callable[[int], str] | None) -> str:
        """The next word of the series that is neither reserved nor the original itself."""
        while True:
            number = self._last_number.get(series, 0) + 1
            self._last_number[series] = number
            word = numbered(number) if numbered else f"{kind}{number}"
            if word not in self._reserved and word != original:
                return word

    def summary(self) -> str:
        """Counts of hidden things by kind, ``2 users, 8 UUIDs``; empty if nothing was hidden."""
        counts: dict[str, int] = {}
        for kind, _ in self._word_by_thing:
            counts[kind] = counts.get(kind, 0) + 1
        parts = [(counts[kind], *NAMES[kind]) for kind in NAMES if kind in counts]
        return say(", ").join(
            say("{count} {things}", count=count, things=say(one if count == 1 else several))
            for count, one, several in parts
        )
