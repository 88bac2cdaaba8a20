"""The interface in a browser, against other web pages, other users of the machine and whoever saw the URL."""

import asyncio
import re
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from textual_serve.app_service import AppService

from gpudoctor.app import interactive, serving
from gpudoctor.core.errors import UsageError

_PATIENCE = aiohttp.ClientTimeout(total=120)
_STAND_IN = "exec sleep 600"
"""What a page starts here: no interface, but a process that is there until it is ended."""


class _Started:
    """The processes of the pages, which the loop must have let go of before it is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes: list[Process] = []
        opened = AppService._open_app_process

        async def noted(service: AppService, width: int = 80, height: int = 24) -> Process:
            self.processes.append(await opened(service, width, height))
            return self.processes[-1]

        monkeypatch.setattr(AppService, "_open_app_process", noted)

    async def end(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
            await process.wait()
            process._transport.close()  # type: ignore[attr-defined]
        for _ in range(10):
            await asyncio.sleep(0)


_STARTED: list[_Started] = []


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    _STARTED[:] = [_Started(monkeypatch)]
    yield
    _STARTED.clear()


@asynccontextmanager
async def served() -> AsyncIterator[tuple[serving.TokenServer, aiohttp.ClientSession, str]]:
    """A server, a browser without the cookie, and where the server is."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    await runner.cleanup()
    server = serving.TokenServer(_STAND_IN, "127.0.0.1", port)
    runner = web.AppRunner(await server.application(), shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=_PATIENCE) as browser:
        try:
            yield server, browser, f"http://127.0.0.1:{port}/"
        finally:
            await runner.cleanup()
            await _STARTED[0].end()


async def _status(browser: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, str]:
    async with browser.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_the_token_is_good_for_one_browser() -> None:
    async with served() as (server, browser, base):
        assert (await _status(browser, server.url))[0] == 200
        assert (await _status(browser, server.url))[0] == 200  # the same one, which has the cookie
        async with aiohttp.ClientSession(timeout=_PATIENCE) as other:
            status, said = await _status(other, server.url)
            assert (status, "good once" in said) == (403, True)
            token = server.url.partition("token=")[2]
            names = [cookie.key for cookie in browser.cookie_jar]
            assert [(one["httponly"], one["samesite"]) for one in browser.cookie_jar] == [(True, "Strict")]
            status, _ = await _status(other, base, Cookie=f"{names[0]}={token}")
            assert status == 403  # the token is not what the cookie holds


@pytest.mark.parametrize("host", ["evil.example:{port}", "evil.example", "127.0.0.1.evil.example:{port}", "[::1", ""])
async def test_a_name_that_was_made_to_lead_here_is_refused(host: str) -> None:
    async with served() as (server, browser, base):
        await _status(browser, server.url)
        for path in ("", "ws", "static/js/textual.js", f"?{server.url.partition('?')[2]}"):
            status, said = await _status(browser, base + path, Host=host.format(port=server.port))
            assert status in {400, 403}, path
            assert status == 400 or "not this machine's" in said


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:9000", "[::1]:9000", "192.0.2.7:80"])
async def test_the_other_end_of_a_tunnel_is_no_attack(host: str) -> None:
    async with served() as (server, browser, base):
        await _status(browser, server.url)
        assert (await _status(browser, base, Host=host))[0] == 200
        assert (await _status(browser, base, Host=host, Origin=f"http://{host}"))[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null", "file://", "http://[::1"])
async def test_another_page_gets_neither_pages_nor_the_websocket(origin: str) -> None:
    async with served() as (server, browser, base):
        await _status(browser, server.url)
        status, said = await _status(browser, base, Origin=origin)
        assert (status, "another web page" in said) == (403, True)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await browser.ws_connect(f"{base}ws", headers={"Origin": origin})
        assert refused.value.status == 403


async def test_the_page_takes_nothing_from_elsewhere_and_is_in_no_frame() -> None:
    async with served() as (server, browser, base):
        page = (await _status(browser, server.url))[1]
        assert set(re.findall(r"https?://[^/\"]+/", page)) == {base, "http://www.w3.org/"}  # a name, of SVG
        async with browser.get(base) as answer:
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_in_a_browser_nothing_is_changed_unless_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    interactive.demand_changes()  # on a terminal
    monkeypatch.setenv("TEXTUAL_DRIVER", "textual.drivers.web_driver:WebDriver")
    with pytest.raises(UsageError, match="--serve --allow-changes"):
        interactive.demand_changes()
    monkeypatch.setenv(interactive.CHANGES, "no")
    with pytest.raises(UsageError):
        interactive.demand_changes()
    monkeypatch.setenv(interactive.CHANGES, "yes")
    interactive.demand_changes()
