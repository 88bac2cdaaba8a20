"""Package indexes (PEP 503, PEP 691): which wheels are there, with their hashes.

An index is a stranger: what it answers is bounded in bytes, links, redirects and, above all, in time.
"""

from __future__ import annotations

import html.parser
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

from packaging.utils import canonicalize_name

from gpudoctor.model.errors import UsageError
from gpudoctor.setup.wheel_files import Wheel, wheel_at
from gpudoctor.version import __version__

SECONDS = 3.0
"""How long all pages together may take."""
_MOST_BYTES = 32 << 20
_MOST_LINKS = 50_000
_MOST_REDIRECTS = 4
_CHUNK = 1 << 16
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


class UnreachableError(Exception):
    """Nobody answered in time, or what came is no page of an index; its words say which."""


def checked_base(url: str) -> str:
    """The URL as one to ask; raises `UsageError` for what is none, or would show a password."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\x00-\x20\x7f]", url):
        raise UsageError(f"--index {url[:80]!r} is no http or https URL, such as https://download.pytorch.org/whl")
    if parts.password:
        raise UsageError("--index: a password does not belong in a command; keep it in .netrc, or in pip's keyring")
    return url.rstrip("/")


def wheels(pages: Iterable[tuple[str, str]], seconds: float = SECONDS) -> dict[tuple[str, str], list[Wheel]]:
    """The wheels on the pages of these (index, package), none where the index has no such package.

    Raises `UnreachableError` where one of them did not come whole in time. Pages are asked for side by side.
    """
    wanted = list(dict.fromkeys(pages))
    deadline = time.monotonic() + seconds
    asked = [_Asked(*page, deadline) for page in wanted]
    found = {}
    for page, one in zip(wanted, asked, strict=True):
        found[page] = one.answer(deadline, page[0])
    return found


class _Asked:
    """One page, asked in a thread of its own: neither a name server nor a byte a second may hold us up."""

    def __init__(self, index: str, package: str, deadline: float) -> None:
        self._page = (index, package, deadline)
        self._found: list[Wheel] = []
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="index")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = list(_page(*self._page))
        except Exception as trouble:  # whatever a stranger's answer does, it is told as not reachable
            self._trouble = trouble

    def answer(self, deadline: float, index: str) -> list[Wheel]:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            raise UnreachableError(f"{host(index)} did not answer in time")
        if self._trouble:
            said = self._trouble if isinstance(self._trouble, UnreachableError) else _reason(self._trouble)
            raise UnreachableError(f"{host(index)}: {said}") from self._trouble
        return self._found


def host(index: str) -> str:
    """Whom a URL names, without a user and a password."""
    parts = urllib.parse.urlsplit(index)
    return parts.hostname or "the index"


def _reason(trouble: BaseException) -> str:
    wrapped = isinstance(trouble, urllib.error.URLError) and not isinstance(trouble, urllib.error.HTTPError)
    inner = trouble.reason if wrapped else trouble  # type: ignore[attr-defined]
    return re.sub(r"^\[Errno -?\d+\] ", "", " ".join(str(inner).split()))[:120] or type(inner).__name__


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few, never from https to what anybody can read or change."""

    max_redirections = _MOST_REDIRECTS
    max_repeats = 1

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        before, after = (urllib.parse.urlsplit(url).scheme for url in (req.full_url, newurl))
        if after not in ("http", "https") or (before == "https" and after == "http"):
            fp.close()
            raise UnreachableError(f"it redirects to {newurl[:60]!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """HTTP and HTTPS alone: no file, no FTP."""
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


def _page(index: str, package: str, deadline: float) -> Iterator[Wheel]:
    url = f"{index}/{canonicalize_name(package)}/"
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT, "User-Agent": f"gpudoctor/{__version__}"})
    try:
        with _opener().open(request, timeout=SECONDS) as answer:
            kind, body = answer.headers.get_content_type(), _body(answer, deadline)
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


def _body(answer: Any, deadline: float) -> bytes:
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
    try:
        files = json.loads(body)["files"]
        for entry in files[:_MOST_LINKS]:
            if not entry.get("yanked"):
                yield str(entry["url"]), str((entry.get("hashes") or {}).get("sha256", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreachableError("its page is not what PEP 691 says") from error


def _links_of_html(body: bytes, deadline: float) -> list[tuple[str, str]]:
    reader = _Links()
    text = body.decode("utf-8", "replace")
    for start in range(0, len(text), _CHUNK):
        reader.feed(text[start : start + _CHUNK])
        if time.monotonic() > deadline or len(reader.found) > _MOST_LINKS:
            raise UnreachableError("its page is too long to be read in time")
    return reader.found


class _Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and "data-yanked" not in given:
            href, _, fragment = (given.get("href") or "").partition("#")
            self.found.append((href, fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""))
