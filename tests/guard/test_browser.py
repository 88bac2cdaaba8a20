"""The interface in a real browser: Chromium, driven by Playwright. No test clicks on the page before it types."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests import needs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, WebSocket, WebSocketRoute

pytestmark = pytest.mark.full

_LONG = 180_000.0
"""Milliseconds that a page may take on a busy machine."""
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP rebound.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""Nothing but this machine is reached; a foreign name leads to it, as after DNS rebinding."""
_FOCUSED = "38;2;95;175;255;48;2;18;18;18m"
"""The colour of the border around what has the focus."""
_OPENED = """\
address => new Promise(done => {
  const socket = new WebSocket(address);
  socket.onopen = () => { socket.close(); done(true); };
  socket.onerror = () => done(false);
})"""
"""Whether a web page may open a websocket."""


@contextmanager
def launched() -> Iterator[Browser]:
    """Chromium, which reaches this machine alone; skips where it or Playwright is missing."""
    program = needs.program("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        needs.missing("the package playwright")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def profile(chromium: Browser) -> Iterator[Callable[[], BrowserContext]]:
    """Makes browsers without cookies."""
    made: list[BrowserContext] = []

    def make() -> BrowserContext:
        made.append(chromium.new_context())
        made[-1].set_default_timeout(_LONG)
        return made[-1]

    yield make
    for one in made:
        one.close()


@contextmanager
def served(limits: str = "pass") -> Iterator[str]:
    """The URL of a demo, served by a process of its own."""
    start = f"from gpudoctor.app import serving; {limits}; serving.serve(['demo', 'torch-cu130'], '127.0.0.1:0')"
    colourful = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    server = subprocess.Popen([sys.executable, "-c", start], stderr=subprocess.PIPE, text=True, env=colourful)
    try:
        assert server.stderr
        url = re.search(r"http://\S+", server.stderr.readline())
        assert url
        yield url[0]
    finally:
        server.terminate()
        server.communicate(timeout=_LONG / 1000)


class Screen:
    """A page, and what has been drawn on it."""

    def __init__(self, browser: BrowserContext) -> None:
        self.drawn = ""
        self.size = 1, 1
        """Columns and lines that the page has asked for last."""
        self.page: Page = browser.new_page()
        self.page.on("websocket", self._watch)

    def _watch(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._draw)
        socket.on("framesent", self._note_size)

    def _note_size(self, frame: str | bytes) -> None:
        if frame[:9] == '["resize"':
            asked = json.loads(frame)[1]
            self.size = asked["width"], asked["height"]

    def _draw(self, frame: str | bytes) -> None:
        self.drawn += frame.decode("utf-8", "replace") if isinstance(frame, bytes) else ""

    def wait_for(self, *words: str) -> None:
        """Wait until all of them have been drawn, in any order: one screen comes in several pieces."""
        end = time.monotonic() + _LONG / 1000
        while missing := [word for word in words if word not in self.drawn]:
            assert time.monotonic() < end, missing
            self.page.wait_for_timeout(50)

    def press(self, key: str, *words: str) -> None:
        """Press the key, and wait until all these words are drawn after it."""
        self.drawn = ""
        self.page.keyboard.press(key)
        self.wait_for(*words)

    def click(self, column: int, line: int, *words: str) -> None:
        """Click into that cell, and wait until all these words are drawn after it."""
        box = self.page.locator(".xterm-screen").bounding_box()
        assert box
        width, height = box["width"] / self.size[0], box["height"] / self.size[1]
        self.drawn = ""
        self.page.mouse.click(box["x"] + (column + 0.5) * width, box["y"] + (line + 0.5) * height)
        self.wait_for(*words)

    def wait_for_focus(self, title: str) -> None:
        """Wait until the pane of that title is, as it was drawn last, the one that has the focus."""
        end = time.monotonic() + _LONG / 1000
        while not self.drawn.rpartition(title)[0].rpartition("╭")[0].endswith(_FOCUSED):
            assert time.monotonic() < end, self.drawn.rpartition(title)[0][-100:]
            self.page.wait_for_timeout(50)


def test_the_url_opens_the_interface_once_and_keys_work_without_a_click(profile: Callable[[], BrowserContext]) -> None:
    with served() as url:
        ours = Screen(profile())
        ours.page.goto(url)
        ours.wait_for("BROKEN", "535.274.02")
        ours.wait_for_focus(" Causes ")
        assert ours.page.url == url.partition("?")[0]
        assert ours.page.title() == "gpudoctor"
        assert ours.page.locator(".xterm-screen canvas").first.is_visible()
        ours.page.keyboard.press("?")
        ours.wait_for("What the marks mean")

        theirs = profile().new_page()
        for address, words in ((url, "good once"), (ours.page.url, "token included")):
            answer = theirs.goto(address)
            assert answer
            assert answer.status == 403
            assert words in theirs.inner_text("body")


SCREENS = ("1 Diagnosis", "2 GPUs", "3 Facts", "4 Kernels", "5 Cluster", "6 Setup", "7 Job")


def test_every_screen_opens_by_its_key_and_by_the_mouse_in_a_window_of_any_size(
    profile: Callable[[], BrowserContext],
) -> None:
    with served() as url:
        ours = Screen(profile())
        ours.page.set_viewport_size({"width": 1200, "height": 760})
        ours.page.goto(url)
        ours.wait_for("BROKEN", "535.274.02")
        for name in (*SCREENS[1:], SCREENS[0]):
            ours.press(name[0], f"[{name}]")
        for number, name in enumerate(SCREENS[1:], 1):
            ours.click(len("  ".join(SCREENS[:number])) + 4, 2, f"[{name}]")
        ours.drawn = ""
        ours.page.set_viewport_size({"width": 760, "height": 520})
        ours.wait_for("[7 Job]", "4 Kern ")
        ours.press("1", "[1 Diag]", "BROKEN")


def test_a_lost_connection_is_shown_and_a_key_connects_again(profile: Callable[[], BrowserContext]) -> None:
    routes: list[WebSocketRoute] = []

    def on_the_way(route: WebSocketRoute) -> None:
        routes.append(route)
        route.connect_to_server()

    with served() as url:
        page = profile().new_page()
        page.route_web_socket(re.compile("/ws"), on_the_way)
        page.goto(url)
        page.wait_for_selector("body.-first-byte")
        routes[-1].close()
        page.wait_for_selector("body.-closed")
        assert "Session ended" in page.inner_text(".closed-dialog")
        page.keyboard.press("Enter")
        page.wait_for_selector("body.-first-byte")
        assert len(routes) == 2


@pytest.fixture
def neighbour() -> Iterator[str]:
    """The URL of another web server of this host, to whose pages the browser gives the same cookies."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_other_web_pages_and_foreign_names_get_nothing(profile: Callable[[], BrowserContext], neighbour: str) -> None:
    with served() as url:
        browser = profile()
        page = browser.new_page()
        page.goto(url)
        websocket = page.url.replace("http:", "ws:") + "ws"
        assert page.evaluate(_OPENED, websocket)

        page.goto(page.url.replace("127.0.0.1", "rebound.example"))
        assert "not this machine's" in page.inner_text("body")

        page.goto(neighbour)
        with page.expect_console_message(lambda message: "403" in message.text):
            assert not page.evaluate(_OPENED, websocket)


def test_a_page_that_is_one_too_many_says_so_and_starts_by_a_key_later(profile: Callable[[], BrowserContext]) -> None:
    with served("serving.MOST_PAGES = 1") as url:
        browser = profile()
        first, second = Screen(browser), Screen(browser)
        first.page.goto(url)
        first.wait_for("BROKEN")
        second.page.goto(first.page.url)
        second.page.wait_for_selector("body.-closed")
        assert "at most 1" in second.page.inner_text(".closed-dialog")
        first.page.keyboard.press("q")
        first.page.wait_for_selector("body.-closed")
        assert "Session ended" in first.page.inner_text(".closed-dialog")
        while "BROKEN" not in second.drawn:  # the first one's process may still be on its way out
            second.page.keyboard.press("Enter")
            second.page.wait_for_selector("body.-first-byte, body.-closed")


def test_a_page_that_nobody_uses_is_ended(profile: Callable[[], BrowserContext]) -> None:
    with served("serving.IDLE_SECONDS = 0.5") as url:
        page = profile().new_page()
        page.goto(url)
        page.wait_for_selector("body.-closed")
