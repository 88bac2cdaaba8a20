"""The interface in a browser: nobody sees it who has not the whole URL."""

from __future__ import annotations

import asyncio
import http.client
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import aiohttp
import pytest

from gpudoctor import cli, serving
from gpudoctor.commands.exits import MISUSE
from gpudoctor.model.errors import UsageError

_LONG = 120.0
"""Seconds that a page may take on a busy machine."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A demo in a browser, on a port of the kernel's choice."""
    command = [sys.executable, "-m", "gpudoctor", "demo", "torch-cu130", "--serve"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    assert server.stdout
    said = re.search(r"http://\S+", server.stderr.readline())
    assert said
    yield said[0]
    server.terminate()
    out, err = server.communicate(timeout=_LONG)
    assert (server.returncode, out, err) == (128 + 15, "", "")


@pytest.fixture(scope="module")
def cookies(url: str) -> dict[str, str]:
    """What the token of the URL was exchanged for, once."""
    at = urlsplit(url)
    with closing(http.client.HTTPConnection(at.netloc, timeout=_LONG)) as link:
        link.request("GET", f"/?{at.query}")
        answer = link.getresponse()
        assert answer.status == 302
        assert answer.headers["Location"] == "/"
        given = answer.headers["Set-Cookie"]
    assert all(part in given for part in ("HttpOnly", "SameSite=Strict", "Path=/"))
    assert at.query.partition("=")[2] not in given
    name, _, value = given.partition(";")[0].partition("=")
    return {name: value}


async def test_without_the_token_nothing_is_answered(url: str) -> None:
    base = url.partition("?")[0]
    async with aiohttp.ClientSession() as browser:
        for path in ("", "?token=wrong", "ws", "static/js/textual.js", "download/key"):
            async with browser.get(base + path) as answer:
                assert answer.status == 403, path
                assert "token" in await answer.text()
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await browser.ws_connect(f"{base}ws")
        assert refused.value.status == 403


async def test_with_it_there_is_the_page_and_no_token_in_its_address(url: str, cookies: dict[str, str]) -> None:
    async with aiohttp.ClientSession(cookies=cookies, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(url) as answer:  # again, which who has the cookie may
            page = await answer.text()
            assert answer.status == 200
            assert "token" not in str(answer.url)
        assert "gpudoctor" in page
        assert f"ws://{urlsplit(url).netloc}/ws" in page
        scripts = re.findall(r'src="(http://[^"]+)"', page)
        assert scripts
        for script in scripts:
            async with browser.get(script) as answer:
                assert answer.status == 200, script


async def test_the_page_gets_the_interface_itself(url: str, cookies: dict[str, str]) -> None:
    base = url.partition("?")[0]
    async with (
        aiohttp.ClientSession(cookies=cookies, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
        browser.ws_connect(f"{base}ws?width=120&height=40") as page,
    ):
        await asyncio.wait_for(_drawn(page, "BROKEN", "535.274.02"), _LONG)


async def _drawn(page: aiohttp.ClientWebSocketResponse[bool], *until: str) -> str:
    """What has come when all of that has: one screen comes in several pieces."""
    drawn = ""
    while not all(words in drawn for words in until):
        message = await page.receive()
        assert message.type in {aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT}, message
        drawn += message.data.decode("utf-8", "replace") if isinstance(message.data, bytes) else ""
    return drawn


async def test_another_page_on_this_host_cannot_borrow_the_cookie(url: str, cookies: dict[str, str]) -> None:
    base = url.partition("?")[0]
    async with aiohttp.ClientSession(cookies=cookies, cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await browser.ws_connect(f"{base}ws", headers={"Origin": "http://127.0.0.1:1"})
        assert refused.value.status == 403


@pytest.mark.parametrize(
    ("at", "is_at"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("8000", ("127.0.0.1", 8000)),
        ("node17", ("node17", 0)),
        ("[::1]:8000", ("::1", 8000)),
        ("::1", ("::1", 0)),
    ],
)
def test_a_place_is_host_and_port(at: str, is_at: tuple[str, int]) -> None:
    assert serving.place(at) == is_at


@pytest.mark.parametrize("at", ["", ":8000", "node17:x", "node17:99999", "http://node17", "a/b", "report.txt/"])
def test_what_is_no_place_is_said(at: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        serving.place(at)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["read", "FILE", "--serve"], "--tui --serve"),
        (["check", "--json", "--serve"], "--format"),
        (["demo", "nobody", "--serve"], "no demo is named"),
        (["--serve", "192.0.2.1:80"], "cannot listen"),
    ],
)
def test_misuse_is_said(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(words) == MISUSE
    assert says in capsys.readouterr().err


def test_where_textual_serve_is_missing_it_says_what_to_install() -> None:
    blocked = (
        "import sys; sys.modules['textual_serve'] = None; from gpudoctor import cli; sys.exit(cli.run(['--serve']))"
    )
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == MISUSE
    assert "pip install 'gpudoctor[serve]'" in done.stderr
