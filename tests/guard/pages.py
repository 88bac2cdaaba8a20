"""A page of ``--serve`` without a browser: its websocket, as large as the facts need."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

_LONG = 240.0
"""Seconds that a page may take on a busy machine."""


class Page:
    """What has been drawn, and keys to press."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self._socket = socket
        self.drawn = ""

    @property
    def text(self) -> str:
        """What has been drawn, without colours and places."""
        return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", self.drawn)

    async def press(self, key: str, until: str) -> None:
        """Press a key, and wait until that is drawn."""
        await self._socket.send_json(["stdin", key])
        await self.wait_for(until)

    async def wait_for(self, words: str) -> None:
        """Wait until that is drawn, after what was waited for before."""
        await asyncio.wait_for(self._receive(words), _LONG)

    async def _receive(self, until: str) -> None:
        start = len(self.drawn)
        while until not in self.drawn[start:]:
            message = await self._socket.receive()
            assert message.type in {aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT}, message
            self.drawn += message.data.decode("utf-8", "replace") if isinstance(message.data, bytes) else ""


@asynccontextmanager
async def opened(words: tuple[str, ...], env: Mapping[str, str]) -> AsyncIterator[Page]:
    """The page of a server of its own; it ends with it."""
    command = (sys.executable, "-m", "gpudoctor", *words, "--serve")
    server = await asyncio.create_subprocess_exec(*command, env={**os.environ, **env}, stdout=DEVNULL, stderr=PIPE)
    try:
        assert server.stderr
        url = re.search(r"http://\S+", (await server.stderr.readline()).decode())
        assert url
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            async with browser.get(url[0]) as answer:
                assert answer.status == 200
            async with browser.ws_connect(f"{answer.url}ws?width=200&height=1500", max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        server.terminate()
        await server.communicate()
