"""The interface in a browser, by textual-serve; whoever has not the token of the printed URL is turned away.

The token is good for one exchange: for a cookie, which is another secret. Each request's Host must be an address, or a
name of this machine (a page whose own name was made to lead here, by DNS rebinding, has another), and its Origin ours.
What changes the machine is off (`interactive.demand_changes`) unless it was asked for.

Importing this needs textual-serve, which comes with ``gpudoctor[serve]``.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import secrets
import shlex
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp_jinja2
from aiohttp import WSMessage, WSMsgType, web
from aiohttp.typedefs import Handler
from textual_serve.app_service import AppService
from textual_serve.server import Server

from gpudoctor.app.interactive import CHANGES
from gpudoctor.core import shipped
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.target.network import is_address

_PAGE_END_SECONDS = 2.0
"""Seconds that pages still open may take to end when the server does."""
MOST_PAGES = 8
"""Pages that are open at a time: each is a process."""
_MOST_REQUESTS = 64
"""Requests that are answered at a time."""
IDLE_SECONDS = 1800.0
"""Seconds without a key, a click or a change of size after which a page is ended."""
_KEEP_ALIVE_SECONDS = 15.0
"""Seconds that a connection without a request is kept."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; object-src 'none'; form-action 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FOREIGN = re.compile(r"<link\b[^>]*?https?://fonts\.googleapis\.com[^>]*>")
"""The one thing that textual-serve's page takes from elsewhere: a font."""
_HEAD = '<title>gpudoctor</title><link rel="icon" href="data:,">'
_SCRIPT = """\
<script>
  (() => {
    const find = (selector) => document.querySelector(selector);
    const focus = () => {
      const state = document.body.classList;
      if (state.contains("-closed")) {
        if (!state.contains("-loaded"))
          find(".closed-dialog .message").textContent = "REFUSED";
        find(".closed-dialog button")?.focus();
      } else if (state.contains("-loaded"))
        find(".xterm-helper-textarea")?.focus();
    };
    new MutationObserver(focus).observe(document.body, {attributes: true, attributeFilter: ["class"]});
    window.addEventListener("focus", focus);
  })();
</script>
"""
"""Keys go to the terminal once it is connected (``-loaded``), to the button that starts it anew once it is closed, and
so whenever the window comes back. REFUSED replaces "Session ended." where there was no session.
"""


def serve(arguments: Sequence[str], at: str, changes: bool = False) -> None:
    """Serve the interface of gpudoctor with these arguments at ``HOST:PORT`` until interrupted; prints the URL.

    The URL goes to standard error. Each page that is opened starts the command anew; `changes` lets it change this
    machine. Raises `UsageError` where it cannot listen there.
    """
    host, port = place(at)
    os.environ[CHANGES] = "yes" if changes else "no"
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(
            say(
                "cannot listen at {at}: {why}; --serve HOST:PORT names another",
                at=at,
                why=error.strerror or error,
            )
        ) from error
    with listening:
        server = TokenServer(shlex.join([*shipped.own_command(), *arguments]), host, listening.getsockname()[1])
        sys.stderr.write(f"gpudoctor: the interface is at {server.url}\n")
        if not _is_loopback(host):
            sys.stderr.write("gpudoctor: what is shown crosses the network unencrypted; an ssh tunnel would not\n")
        sys.stderr.flush()
        web.run_app(
            server.application(),
            sock=listening,
            print=None,
            handle_signals=False,
            shutdown_timeout=_PAGE_END_SECONDS,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
        )


def place(at: str) -> tuple[str, int]:
    """Host and port in ``HOST:PORT``, ``HOST`` or ``PORT``; port 0 is any that is free. Raises `UsageError`."""
    if at.isdecimal():
        at = f"127.0.0.1:{at}"
    elif at.count(":") > 1 and not at.startswith("["):
        at = f"[{at}]"
    try:
        parts = urlsplit(f"//{at}")
        host, port = parts.hostname, parts.port or 0
    except ValueError:
        host, port = None, 0
    if not host or parts.netloc != at or parts.path:
        raise UsageError(say("{at} is not HOST:PORT, as in 127.0.0.1:8000", at=repr(at)))
    return host, port


def _is_loopback(host: str) -> bool:
    """True for a loopback address and ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class TokenServer(Server):
    """Textual's server behind a token, which is exchanged once for a cookie; without it nothing is answered."""

    def __init__(self, command: str, host: str, port: int) -> None:
        named = f"[{host}]" if ":" in host else host
        super().__init__(command, host, port, title="gpudoctor", public_url=f"http://{named}:{port}")
        self._token = secrets.token_urlsafe(24)
        self._secret = secrets.token_urlsafe(24)
        """What the cookie holds; the token is for one exchange."""
        self._used = False
        self._names = {"localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
        self._requests = self._pages = 0
        self._cookie = f"gpudoctor-{port}"
        """Cookies are one jar for all ports of a host."""

    @property
    def url(self) -> str:
        """The URL to open in a browser, with the token."""
        return f"{self.public_url}/?token={self._token}"

    async def application(self) -> web.Application:
        """The web application of Textual's server, with the token's guard as its last middleware."""
        app = await self._make_app()
        app.middlewares.append(self._guard())
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing: the URL has been printed, and the base class would print to stdout."""

    def _guard(self) -> Any:
        """Middleware that refuses foreign Host or Origin headers, requests without the cookie, and too many at once.

        A request for ``/`` with the token is answered with the cookie and a redirect.
        """

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            """Answer the request, or raise the refusal."""
            if not self._names_this_machine(request.host):
                raise _refusal("this page was asked for by a name that is not this machine's; use the URL as printed")
            origin = request.headers.get("Origin")
            if not (origin is None or origin.partition("://")[2] == request.host):
                raise _refusal("another web page asks; open the URL that gpudoctor --serve printed")
            if request.path == "/" and "token" in request.query:
                raise self._cookie_for_token(request)
            if not _equal_secret(request.cookies.get(self._cookie, ""), self._secret):
                raise _refusal("open the whole URL that gpudoctor --serve printed, token included")
            if self._requests >= _MOST_REQUESTS:
                raise _refusal(
                    f"{_MOST_REQUESTS} requests are open already; close some pages", web.HTTPServiceUnavailable
                )
            self._requests += 1
            try:
                return await handler(request)
            finally:
                self._requests -= 1

        return guard

    def _cookie_for_token(self, request: web.Request) -> web.HTTPFound:
        """Redirect to ``/`` that sets the cookie; raises a refusal for a wrong token, or one that was used.

        A browser that has the cookie already is only redirected.
        """
        if not _equal_secret(request.query["token"], self._token):
            raise _refusal("open the whole URL that gpudoctor --serve printed, token included")
        answer = web.HTTPFound("/", headers=_HEADERS)  # the token leaves the address bar, which is in every photograph
        if not _equal_secret(request.cookies.get(self._cookie, ""), self._secret):
            if self._used:
                raise _refusal("this URL was opened already, its token is good once; for another browser start it anew")
            self._used = True
            answer.set_cookie(self._cookie, self._secret, httponly=True, samesite="Strict", path="/")
        return answer

    def _names_this_machine(self, host: str) -> bool:
        """True if a Host header names this machine: by an address, which DNS rebinding cannot fake, or a name."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self._names or is_address(name)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Serve a websocket as Textual does; raises a refusal beyond `MOST_PAGES` open pages."""
        if self._pages >= MOST_PAGES:
            raise _refusal(f"{MOST_PAGES} pages are open already; close one", web.HTTPServiceUnavailable)
        self._pages += 1
        try:
            return await super().handle_websocket(request)
        finally:
            self._pages -= 1

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: AppService) -> None:
        """Process messages as Textual does, but end after `IDLE_SECONDS` seconds without one."""
        await super()._process_messages(_IdleLimitedSocket(websocket), app_service)  # type: ignore[arg-type]

    async def handle_index(self, request: web.Request) -> web.Response:
        """The HTML page, with URLs of the host that the browser asked, which may be the other end of a tunnel.

        Foreign fonts are left out, and a script says why it is not connected.
        """
        font = request.query.get("fontsize", "16")
        context = {
            "font_size": int(font) if font.isdecimal() else 16,
            "app_websocket_url": f"{'wss' if request.secure else 'ws'}://{request.host}/ws",
            "config": {"static": {"url": f"{request.scheme}://{request.host}/static/"}},
            "application": {"name": self.title},
        }
        page = aiohttp_jinja2.render_template("app_index.html", request, context)
        refused = f"Not connected: gpudoctor has ended, or too many pages are open (at most {MOST_PAGES})."
        script = _SCRIPT.replace("REFUSED", refused)
        text = _FOREIGN.sub("", page.text or "").replace("<head>", f"<head>{_HEAD}")
        text = text.replace("</body>", f"{script}</body>")
        return web.Response(text=text, content_type="text/html", headers=_HEADERS)


class _IdleLimitedSocket:
    """A websocket whose messages end when none came for `IDLE_SECONDS` seconds."""

    def __init__(self, websocket: web.WebSocketResponse) -> None:
        self._websocket = websocket
        self.send_json = websocket.send_json

    async def __aiter__(self) -> AsyncIterator[WSMessage]:
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            while (message := await self._websocket.receive(IDLE_SECONDS)).type not in _ENDS:
                yield message


_ENDS = {WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR}


def _refusal(sentence: str, kind: type[web.HTTPException] = web.HTTPForbidden) -> web.HTTPException:
    """HTTP error with this sentence, after which the connection is closed; to be raised."""
    refusal = kind(text=f"{kind.status_code}: {sentence}\n", headers=_HEADERS)
    refusal.force_close()
    return refusal


def _equal_secret(given: str, secret: str) -> bool:
    """True if the strings are equal, compared in constant time."""
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())
