"""The interface in a browser, by textual-serve; whoever has not the token of the printed URL is turned away.

Importing this needs textual-serve, which comes with ``gpudoctor[serve]``.
"""

from __future__ import annotations

import ipaddress
import secrets
import shlex
import socket
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp_jinja2
from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve.server import Server

from gpudoctor import shipped
from gpudoctor.model.errors import UsageError

_PATIENCE = 2.0
"""Seconds that pages still open may take to end when the server does."""


def serve(words: Sequence[str], at: str) -> None:
    """Serve what ``gpudoctor WORDS`` shows at ``HOST:PORT`` until interrupted; prints the URL on stderr.

    Each page that is opened starts the command anew. Raises `UsageError` where it cannot listen there.
    """
    host, port = place(at)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(
            f"cannot listen at {at}: {error.strerror or error}; --serve HOST:PORT names another"
        ) from error
    with listening:
        server = TokenServer(shlex.join([*shipped.program(), *words]), host, listening.getsockname()[1])
        sys.stderr.write(f"gpudoctor: the interface is at {server.url}\n")
        if not _is_loopback(host):
            sys.stderr.write("gpudoctor: what is shown crosses the network unencrypted; an ssh tunnel would not\n")
        sys.stderr.flush()
        web.run_app(server.application(), sock=listening, print=None, handle_signals=False, shutdown_timeout=_PATIENCE)


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
        raise UsageError(f"{at!r} is not HOST:PORT, as in 127.0.0.1:8000")
    return host, port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class TokenServer(Server):
    """Textual's server behind a token: the URL's goes into a cookie, and without it nothing is answered."""

    def __init__(self, command: str, host: str, port: int) -> None:
        named = f"[{host}]" if ":" in host else host
        super().__init__(command, host, port, title="gpudoctor", public_url=f"http://{named}:{port}")
        self._token = secrets.token_urlsafe(24)
        self._cookie = f"gpudoctor-{port}"
        """Cookies are one jar for all ports of a host."""

    @property
    def url(self) -> str:
        """What a browser opens."""
        return f"{self.public_url}/?token={self._token}"

    async def application(self) -> web.Application:
        """The web application, guarded."""
        app = await self._make_app()
        app.middlewares.append(self._guard())
        return app

    async def on_startup(self, app: web.Application) -> None:
        """The URL has been printed; the server's own words would go to stdout."""

    def _guard(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if self._is_token(request.query.get("token", "")) and request.path == "/":
                answer = web.HTTPFound("/")  # the token leaves the address bar, which is in every photograph
                answer.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict")
                return answer
            if not self._is_token(request.cookies.get(self._cookie, "")) or not _same_origin(request):
                raise web.HTTPForbidden(text="403: open the whole URL that gpudoctor --serve printed, token included\n")
            return await handler(request)

        return guard

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())

    async def handle_index(self, request: web.Request) -> web.Response:
        """The page, with addresses of the host that the browser asked: it may be the other end of a tunnel."""
        font = request.query.get("fontsize", "16")
        context = {
            "font_size": int(font) if font.isdecimal() else 16,
            "app_websocket_url": f"{'wss' if request.secure else 'ws'}://{request.host}/ws",
            "config": {"static": {"url": f"{request.scheme}://{request.host}/static/"}},
            "application": {"name": self.title},
        }
        return aiohttp_jinja2.render_template("app_index.html", request, context)


def _same_origin(request: web.Request) -> bool:
    """Whether a page of ours asks; another page on this host would send our cookie along."""
    origin = request.headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == request.host
