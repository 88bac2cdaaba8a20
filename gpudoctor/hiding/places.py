"""Where a name must stand: below /home, before an @, in a line of syslog. What stands there is the name.

Each pattern has one group or more, each of which is a name of the kind that it is listed under. A pattern is looked for
only where one of its needles is in the text, in small letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpudoctor.hiding.public import FOLDERS, SHELVES, is_file, is_public_host

_PART = r"""[^\s/\\:;,"'`()<>\[\]{}|=&?#*$%@]{1,64}"""
"""One folder of a path."""
_HOSTS = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9][A-Za-z0-9_-]{0,62}){0,8}"
_TLDS = (
    "com|org|net|edu|gov|mil|int|arpa|internal|local|localdomain|lan|corp|intra|intranet|private|cluster|example|ai|io"
    "|de|fr|uk|nl|ch|at|it|es|se|no|fi|dk|pl|cz|eu|us|ca|au|nz|jp|cn|kr|tw|in|sg|br|il|ru|hpc|dev|cloud|tech|gmbh"
)


@dataclass(frozen=True, slots=True)
class Span:
    """A name of that kind, from one place in the text to another; not `sure` where a word of prose may stand there."""

    start: int
    end: int
    kind: str
    sure: bool = True


@dataclass(frozen=True, slots=True)
class _Place:
    kind: str
    sure: bool
    needles: tuple[str, ...]
    pattern: re.Pattern[str]


def _place(kind: str, needles: str, pattern: str) -> _Place:
    """With ``?`` behind the kind a word of prose may stand there, too."""
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
_SCRATCH_WORDS = (
    "data scratch work lustre gpfs storage fsx beegfs project projects groups shared nfs export mnt vol ssd nvme raid"
    " tmp weka ceph wekafs ddn panfs p ptmp localscratch nobackup workspace team"
)
_SCRATCH = frozenset(_SCRATCH_WORDS.split())
_OWN_WORDS = (
    ".local .cache .conda .config .ssh .nv .pyenv .virtualenvs .triton .cupy .keras .bashrc .netrc .vscode-server"
    " .cargo .docker .kube .aws .huggingface .jupyter .ipython .condarc .profile miniconda3 miniforge3 anaconda3"
    " mambaforge"
)
_OWN = frozenset(_OWN_WORDS.split())
"""What stands in the home folder of a user."""


def spans(text: str) -> Iterator[Span]:
    """Every name in the text that stands where a name must, in any order; some may overlap."""
    low = text.lower()
    for place in _PLACES if _MARKED.search(low) else ():
        for needle in place.needles:
            if needle in low:
                yield from _found(place, text)
                break
    if "/" in text:
        yield from _in_paths(text)
    if "@" in text:
        yield from _logins(text)
    if "." in text:
        yield from (Span(match.start(1), match.end(1), "host") for match in _FQDN.finditer(text) if _is_host(match[1]))


def _found(place: _Place, text: str) -> Iterator[Span]:
    for match in place.pattern.finditer(text):
        for group in range(1, len(match.groups()) + 1):
            yield Span(match.start(group), match.end(group), place.kind, place.sure)


def _is_host(name: str) -> bool:
    """Whether a name with dots is that of a host, and no file, module or site of all the world."""
    if is_file(name) or is_public_host(name) or _MODULES.match(name) or "_" in name:
        return False
    return name.count(".") > 1 or name.lower().rpartition(".")[2] not in _WORDS_TOO


def _logins(text: str) -> Iterator[Span]:
    """``jdoe@node17`` and e-mail addresses."""
    for match in _MAIL.finditer(text):
        if match[1] in _BUILDERS or (is_public_host(match[2]) and match[1] == "git"):
            continue
        if _UNITS.search(match[2]) or re.fullmatch(r"[\d.]+", match[2]):
            continue
        yield Span(match.start(1), match.end(1), "user")
        yield Span(match.start(2), match.end(2), "host")


def _in_paths(text: str) -> Iterator[Span]:
    """The folders that are users', or what a group keeps beside them."""
    for match in _PATH.finditer(text):
        at = match.start()
        parts = match[0].split("/")
        for place, part in enumerate(parts):
            if _is_personal(parts, place):
                yield Span(at, at + len(part), "user")
            at += len(part) + 1


def _is_personal(parts: Sequence[str], place: int) -> bool:
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
    """Whether only shelves stand above it, one of them for many users' files; so the next, where that is not public."""
    tops = [part.lower().rstrip("0123456789") for part in parts[1:place]]
    if not tops or tops[0] not in _SCRATCH or tops[0] == "tmp":
        return False
    return all(top in SHELVES | _SCRATCH for top in tops)


__all__ = ["Span", "spans"]
