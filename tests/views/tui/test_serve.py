"""The interface in a browser: nobody sees it who has not the whole URL."""

import re
import subprocess
import sys
from collections.abc import Iterator

import aiohttp
import pytest

from gpudoctor.app import cli, serving
from gpudoctor.app.output import MISUSE
from gpudoctor.core.errors import UsageError
from tests.processes import finished

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
        "import sys; sys.modules['textual_serve'] = None; from gpudoctor.app import cli; sys.exit(cli.run(['--serve']))"
    )
    done = finished([sys.executable, "-c", blocked])
    assert done.code == MISUSE
    assert "pip install 'gpudoctor[serve]'" in done.err
