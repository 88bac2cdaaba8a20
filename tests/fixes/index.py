"""A package index on this machine, as pip and uv ask one (PEP 503), and the ways in which one fails."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
import time
from pathlib import Path
from urllib.parse import unquote

from tests.fixes.wheels import Wheel

_CHUNK = 16384


def alone(cache: Path) -> dict[str, str]:
    """The environment in which pip and uv know no index but the one they are given, and share no cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    return {
        **kept,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_CACHE_DIR": str(cache / "pip"),
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_NO_CONFIG": "1",
    }


class Index:
    """Serves wheels from shelves: ``http://127.0.0.1:PORT/simple/``, ``.../cu128/``. Use it in a ``with``.

    `pause` are seconds before each 16 KiB of a wheel; with `lost` the connection ends in the middle of one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pause = 0.0
        self.lost = False
        self.asked: list[str] = []
        """The paths that were asked for, in order."""
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def do_HEAD(self) -> None:
                index.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Index:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, *wheels: Wheel, shelf: str = "simple") -> Index:
        """Put these on a shelf."""
        for wheel in wheels:
            wheel.build(self.folder / shelf)
        return self

    def url(self, shelf: str = "simple") -> str:
        """What is given to ``--index-url``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{shelf}/"

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        """The page of a package, or one of its wheels."""
        self.asked.append(request.path)
        shelf, _, rest = unquote(request.path).strip("/").partition("/")
        if rest.endswith(".whl"):
            place = self.folder / shelf / Path(rest).name
            self._send(request, place.read_bytes() if place.is_file() else None, "application/octet-stream", slow=True)
        else:
            self._send(request, self._page(shelf, rest), "text/html")

    def _page(self, shelf: str, name: str) -> bytes | None:
        """The links to every wheel of that name; None where there is none."""
        wheels = sorted((self.folder / shelf).glob("*.whl"))
        mine = [wheel for wheel in wheels if wheel.name.partition("-")[0].lower() == name.replace("-", "_").lower()]
        if not mine:
            return None
        digests = {wheel: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in mine}
        links = (f'<a href="/{shelf}/{wheel.name}#sha256={digests[wheel]}">{wheel.name}</a><br>' for wheel in mine)
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()

    def _send(
        self, request: http.server.BaseHTTPRequestHandler, body: bytes | None, kind: str, slow: bool = False
    ) -> None:
        if body is None:
            request.send_error(404)
            return
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "HEAD":
            return
        try:
            for start in range(0, len(body), _CHUNK):
                if slow and self.lost and start >= len(body) // 2:
                    request.close_connection = True
                    return
                time.sleep(self.pause if slow else 0)
                request.wfile.write(body[start : start + _CHUNK])
        except OSError:  # whoever asked is gone
            request.close_connection = True
