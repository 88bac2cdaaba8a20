"""Package indexes (PEP 503, PEP 691): which wheels are there, with their hashes, and whether what was worked out is.

An index is a stranger: what it answers is bounded in bytes, links, redirects and, above all, in time.
"""

from __future__ import annotations

import html.parser
import json
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging import tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gpudoctor.core.about import __version__
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.fixes.solver.install_commands import BASE, Order

_NEWEST_GLIBC = 45
"""The newest glibc 2.x whose wheels are counted in; every machine of today has one of at least 2.17."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel file in an index; `sha256` is ``""`` if the index gives none."""

    name: str
    version: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Platform:
    """For whom wheels are looked up: ``3.12``, ``linux``, ``windows`` or ``wsl``, ``x86_64`` or ``aarch64``."""

    python: str
    system: str = "linux"
    arch: str = "x86_64"
    threads: bool = False
    """Whether it is a build without the global lock, whose wheels are its own."""

    def tags(self) -> frozenset[tags.Tag]:
        """Wheel tags that are compatible with the platform; glibc is taken to be new enough for any wheel."""
        major, _, minor = self.python.partition(".")
        version = (int(major), int(minor.partition(".")[0] or 0))
        if self.system == "windows":
            platforms = ["win_amd64" if self.arch == "x86_64" else "win_arm64"]
        else:
            platforms = [f"manylinux_2_{minor}_{self.arch}" for minor in range(_NEWEST_GLIBC, 4, -1)]
            platforms += [f"manylinux{old}_{self.arch}" for old in ("2014", "2010", "1")] + [f"linux_{self.arch}"]
        interpreter = f"cp{version[0]}{version[1]}"
        abis = [f"{interpreter}t"] if self.threads else None
        own = tags.cpython_tags(version, abis, platforms)
        return frozenset(own) | frozenset(tags.compatible_tags(version, interpreter, platforms))


def fitting(wheels: Iterable[Wheel], version: str, fits: frozenset[tags.Tag]) -> Wheel | None:
    """First wheel of exactly that version (with its local part) that has a compatible tag; None if there is none."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        return None
    for wheel in wheels:
        filename = urllib.parse.unquote(wheel.url.rpartition("/")[2])
        if wheel.version == str(wanted) and parse_wheel_filename(filename)[3] & fits:
            return wheel
    return None


def wheel_at(url: str, digest: str) -> Wheel | None:
    """Wheel with that URL; None if it is no HTTP URL or no wheel. `digest` is dropped unless it is a SHA-256."""
    if not url.startswith(("https://", "http://")) or not re.fullmatch(r"[\x21-\x7e]{1,2000}", url):
        return None
    try:
        name, version, _, _ = parse_wheel_filename(urllib.parse.unquote(url.rpartition("/")[2]))
    except (InvalidWheelFilename, InvalidVersion, ValueError):
        return None
    return Wheel(name, str(version), url, digest if re.fullmatch(r"[0-9a-f]{64}", digest) else "")


# ---- What the pages of indexes list ----

INDEX_SECONDS = 3.0
"""How long all pages together may take."""
_MOST_BYTES = 32 << 20
_MOST_LINKS = 50_000
_MOST_REDIRECTS = 4
_CHUNK = 1 << 16
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


class UnreachableError(Exception):
    """The index did not answer in time, or not with a package page; the message says which."""


def checked_base(url: str) -> str:
    """The URL without trailing slash; `UsageError` if it is no HTTP URL or contains a password."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\x00-\x20\x7f]", url):
        raise UsageError(
            say("--index {url} is no http or https URL, such as https://download.pytorch.org/whl", url=repr(url[:80]))
        )
    if parts.password:
        raise UsageError(
            say("--index: a password does not belong in a command; keep it in .netrc, or in pip's keyring")
        )
    return url.rstrip("/")


def wheels(pages: Iterable[tuple[str, str]], seconds: float = INDEX_SECONDS) -> dict[tuple[str, str], list[Wheel]]:
    """Wheels by (index, package), fetched in parallel; an empty list if an index lacks the package.
    Raises `UnreachableError` if any page did not come within `seconds`.
    """
    deadline = time.monotonic() + seconds
    asked = {page: _PageRequest(*page, deadline) for page in dict.fromkeys(pages)}
    return {page: request.answer() for page, request in asked.items()}


class _PageRequest:
    """Request of one page in a thread, so that neither DNS nor a slow server can block us."""

    def __init__(self, index: str, package: str, deadline: float) -> None:
        """Start the request of a package's page; `deadline` in monotonic seconds."""
        self._page = (index, package, deadline)
        self._found: list[Wheel] = []
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="index")
        self._thread.start()

    def _run(self) -> None:
        """Fetch the page and keep its wheels, or the exception, for `answer`."""
        try:
            self._found = list(_wheels_on_page(*self._page))
        except Exception as trouble:  # whatever a stranger's answer does, it is told as not reachable
            self._trouble = trouble

    def answer(self) -> list[Wheel]:
        """Wheels on the page; `UnreachableError` if it failed or was not complete by the deadline."""
        index, _, deadline = self._page
        host = urllib.parse.urlsplit(index).hostname or "the index"
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            raise UnreachableError(say("{host} did not answer in time", host=host))
        if self._trouble:
            reason = self._trouble if isinstance(self._trouble, UnreachableError) else _error_text(self._trouble)
            raise UnreachableError(f"{host}: {reason}") from self._trouble
        return self._found


def _error_text(trouble: BaseException) -> str:
    """Text of a network error in one line of at most 120 characters, without errno; else the name of its class. A host
    without an address has one text, for each system words it in its own way.
    """
    wrapped = isinstance(trouble, urllib.error.URLError) and not isinstance(trouble, urllib.error.HTTPError)
    inner = trouble.reason if wrapped else trouble  # type: ignore[attr-defined]
    if isinstance(inner, socket.gaierror):
        return say("its name does not resolve (no network, or no DNS)")
    return re.sub(r"^\[Errno -?\d+\] ", "", " ".join(str(inner).split()))[:120] or type(inner).__name__


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows at most `_MOST_REDIRECTS` redirects, never from https to http."""

    max_redirections = _MOST_REDIRECTS
    max_repeats = 1

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Request for the new URL; `UnreachableError` for a scheme other than http and https, or from https to http."""
        before, after = (urllib.parse.urlsplit(url).scheme for url in (req.full_url, newurl))
        if after not in ("http", "https") or (before == "https" and after == "http"):
            fp.close()
            raise UnreachableError(f"it redirects to {newurl[:60]!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """URL opener for HTTP and HTTPS alone, with the environment's proxies and at most 4 redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _wheels_on_page(index: str, package: str, deadline: float) -> Iterator[Wheel]:
    """Wheels of a package's page; none for status 404 or 403. Raises network errors and `UnreachableError`."""
    url = f"{index}/{canonicalize_name(package)}/"
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT, "User-Agent": f"gpudoctor/{__version__}"})
    try:
        with _opener().open(request, timeout=INDEX_SECONDS) as answer:
            kind, body = answer.headers.get_content_type(), _read_body(answer, deadline)
            url = answer.url
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 403):  # 403: what a bucket answers for a folder that is not there
            return
        raise
    links = _links_of_json(body) if kind.endswith("json") else _links_of_html(body, deadline)
    for href, digest in links:
        if wheel := wheel_at(urllib.parse.urljoin(url, href), digest):
            yield wheel


def _read_body(answer: Any, deadline: float) -> bytes:
    """Body of the HTTP answer; `UnreachableError` if it is over 32 MiB or not complete by `deadline` (monotonic)."""
    parts: list[bytes] = []
    length = 0
    while chunk := answer.read1(_CHUNK):
        length += len(chunk)
        if length > _MOST_BYTES:
            raise UnreachableError(f"its page has more than {_MOST_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise UnreachableError("its page did not come whole in time")
        parts.append(chunk)
    return b"".join(parts)


def _links_of_json(body: bytes) -> Iterator[tuple[str, str]]:
    """(URL, SHA-256 or ``""``) of the first 50,000 files of a PEP 691 page, yanked ones left out; `UnreachableError` if
    malformed.
    """
    try:
        files = json.loads(body)["files"]
        for entry in files[:_MOST_LINKS]:
            if not entry.get("yanked"):
                yield str(entry["url"]), str((entry.get("hashes") or {}).get("sha256", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreachableError("its page is not what PEP 691 says") from error


def _links_of_html(body: bytes, deadline: float) -> list[tuple[str, str]]:
    """(URL, SHA-256 or ``""``) of a PEP 503 page, yanked files left out; `UnreachableError` if it takes until
    `deadline` (monotonic seconds) or has more than 50,000 links.
    """
    reader = _LinkParser()
    text = body.decode("utf-8", "replace")
    for start in range(0, len(text), _CHUNK):
        reader.feed(text[start : start + _CHUNK])
        if time.monotonic() > deadline or len(reader.found) > _MOST_LINKS:
            raise UnreachableError("its page is too long to be read in time")
    return reader.found


class _LinkParser(html.parser.HTMLParser):
    """Collects links of a PEP 503 page, yanked files left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect (URL, SHA-256 or ``""``) of an ``a`` element, unless it is yanked."""
        given = dict(attrs)
        if tag == "a" and "data-yanked" not in given:
            href, _, fragment = (given.get("href") or "").partition("#")
            self.found.append((href, fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""))


# ---- Whether they have what was worked out ----
# torch's own index for torch's packages, the user's for all else.

PYPI = "https://pypi.org/simple"
_SETTINGS = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of asking the indexes: missing requirements, a summary, and (URL, SHA-256) by package."""

    summary: str
    lacks: tuple[str, ...] = ()
    hashes: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Indexes:
    """Indexes to ask: `base` is that of torch's wheels, `others` the user's index for all else."""

    base: str = BASE
    others: str = PYPI
    seconds: float = INDEX_SECONDS
    ask: bool = True
    """Whether they are asked at all."""

    def verdict(self, order: Order, python: str, system: str, arch: str) -> Verdict:
        """Whether the indexes have the order's packages for that platform, but for compiled ones and wheels by URL;
        which they lack, and hashes. Not verified, and said so, if `ask` is False, Python, system or architecture is
        ``""``, or an index does not answer.
        """
        if not self.ask:
            return Verdict(say("Not verified: no index was asked. It is what the tables say."))
        if missing := [word for word, value in (("python", python), ("os", system), ("arch", arch)) if not value]:
            names = ", ".join(missing)
            return Verdict(say("Not verified: the wheels depend on {names}, and nobody said which.", names=names))
        listed = [package for package in order.candidate.packages if package.version and package.origin != "wheel"]
        places = {item: order.index if item.origin == "torch" else self.others for item in listed if not item.compiled}
        try:
            pages = wheels([(place, item.name) for item, place in places.items()], self.seconds)
        except UnreachableError as why:
            return Verdict(say("Not verified: {why}. It is what the tables say.", why=why))
        fits = Platform(python.rstrip("t"), system, arch, threads=python.endswith("t")).tags()
        lacks: list[str] = []
        hashes: dict[str, tuple[str, str]] = {}
        for item, place in places.items():
            pin = order.pin(item)
            wheel = fitting(pages[place, item.name], pin.partition("==")[2], fits)
            if wheel is None:
                lacks.append(pin)
            elif wheel.sha256:
                hashes[item.name] = (wheel.url, wheel.sha256)
        where = {"index": order.index, "python": python, "system": f"{system} {arch}"}
        if lacks:
            return Verdict(say("{index} has no wheel for Python {python} on {system}", **where), tuple(lacks))
        moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        verified = say("Verified against {index} for Python {python} on {system}, {moment}.", moment=moment, **where)
        return Verdict(verified, hashes=hashes)


def user_indexes(base: str = BASE) -> Indexes:
    """Indexes to ask: `base` for torch; for all else the first that is set of PIP_INDEX_URL, UV_DEFAULT_INDEX and
    UV_INDEX_URL, without user name and password, or PyPI if none is set or that one is no HTTP URL.

    `UsageError` if `base` is no HTTP URL or contains a password.
    """
    named = next((os.environ[name] for name in _SETTINGS if os.environ.get(name)), PYPI)
    parts = urllib.parse.urlsplit(named if named.startswith(("https://", "http://")) else PYPI)
    others = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    return Indexes(checked_base(base), others)
