"""An index is asked whether it has the wheels: a good one, one that lacks some, and those that nobody may trust."""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.fixes.solver import index, stacks
from gpudoctor.fixes.solver.described_machine import parse_machine
from gpudoctor.fixes.solver.index import Indexes
from gpudoctor.fixes.solver.install_commands import Order
from gpudoctor.fixes.solver.solution import Candidate, Package
from tests.fixes.index import Index
from tests.fixes.wheels import Wheel

Handler = http.server.BaseHTTPRequestHandler
TORCH = Package("torch", "2.9.0", "torch")
CANDIDATE = Candidate("2.9.0", "cu126", "12.6", (TORCH, Package("vllm", "0.13.0")))
DIGEST = "ab" * 32


def tagged(tag: str, version: str = "2.9.0+cu126") -> Wheel:
    return Wheel("torch", version, tag=tag)


def verdict(served: Index, python: str = "3.12", system: str = "linux", arch: str = "x86_64") -> tuple[str, ...]:
    base = served.url("").rstrip("/")
    return Indexes(base, served.url().rstrip("/")).verdict(Order(CANDIDATE, base=base), python, system, arch).lacks


@pytest.mark.parametrize(
    ("tag", "python", "system", "arch", "there"),
    [
        ("cp312-cp312-manylinux_2_28_x86_64", "3.12", "linux", "x86_64", True),
        ("cp312-cp312-manylinux_2_28_x86_64", "3.12", "wsl", "x86_64", True),
        ("cp312-cp312-manylinux_2_28_x86_64", "3.13", "linux", "x86_64", False),
        ("cp312-cp312-manylinux_2_28_x86_64", "3.12", "linux", "aarch64", False),
        ("cp312-cp312-manylinux_2_28_x86_64", "3.12", "windows", "x86_64", False),
        ("cp312-cp312-win_amd64", "3.12", "windows", "x86_64", True),
        ("cp312-cp312-linux_x86_64", "3.12", "linux", "x86_64", True),
        ("cp313-cp313t-manylinux_2_28_x86_64", "3.13", "linux", "x86_64", False),
        ("cp313-cp313t-manylinux_2_28_x86_64", "3.13t", "linux", "x86_64", True),
        ("cp39-abi3-manylinux_2_28_aarch64", "3.14", "linux", "aarch64", True),
    ],
)
def test_a_wheel_is_there_for_its_python_and_platform_alone(
    tmp_path: Path, tag: str, python: str, system: str, arch: str, there: bool
) -> None:
    with Index(tmp_path) as served:
        served.add(tagged(tag), shelf="cu126").add(Wheel("vllm", "0.13.0"))
        assert verdict(served, python, system, arch) == (() if there else ("torch==2.9.0+cu126",))


def test_another_build_or_release_is_not_the_one_that_was_worked_out(tmp_path: Path) -> None:
    with Index(tmp_path) as served:
        served.add(tagged("py3-none-any", "2.9.0+cu128"), tagged("py3-none-any", "2.9.1+cu126"), shelf="cu126")
        assert verdict(served) == ("torch==2.9.0+cu126", "vllm==0.13.0")


def test_what_was_verified_says_against_what_and_when(tmp_path: Path) -> None:
    with Index(tmp_path) as served:
        served.add(tagged("cp312-cp312-manylinux_2_28_x86_64"), shelf="cu126").add(Wheel("vllm", "0.13.0"))
        base = served.url("").rstrip("/")
        said = Indexes(base, served.url().rstrip("/")).verdict(Order(CANDIDATE, base=base), "3.12", "linux", "x86_64")
        assert said.summary.startswith(f"Verified against {base}/cu126 for Python 3.12 on linux x86_64, 20")
        assert set(said.hashes) == {"torch", "vllm"}


def test_json_pages_are_read_and_yanked_files_are_not_there() -> None:
    name = "torch-2.9.0+cu126-cp312-cp312-manylinux_2_28_x86_64.whl"
    entry = {"filename": name, "url": f"../files/{name.replace('+', '%2B')}", "hashes": {"sha256": DIGEST}}
    for files, found in (([entry], 1), ([{**entry, "yanked": "broken"}], 0)):
        body = json.dumps({"files": files}).encode()
        with served(lambda it, body=body: answer(it, body, "application/vnd.pypi.simple.v1+json")) as url:  # type: ignore[misc]
            wheels = index.wheels([(url, "torch")])[url, "torch"]
            assert [(wheel.version, wheel.sha256) for wheel in wheels] == [("2.9.0+cu126", DIGEST)] * found


def answer(request: Handler, body: bytes, kind: str = "text/html") -> None:
    request.send_response(200)
    request.send_header("Content-Type", kind)
    request.end_headers()
    request.wfile.write(body)


def redirect(request: Handler, where: str) -> None:
    request.send_response(302)
    request.send_header("Location", where)
    request.end_headers()


def drip(request: Handler) -> None:
    answer(request, b"")
    for _ in range(200):
        request.wfile.write(b"<")
        request.wfile.flush()
        time.sleep(0.05)


def drip_headers(request: Handler) -> None:
    for _ in range(200):
        request.wfile.write(b"H")
        request.wfile.flush()
        time.sleep(0.05)


def endless(request: Handler) -> None:
    answer(request, b"")
    for _ in range(1000):
        request.wfile.write(b"<a href=x>" * 10_000)


def broken(request: Handler) -> None:
    answer(request, b"\xff<a href='javascript:x'><a href><<a\x00 href=\"torch-2.9.0.whl\"><!doctype [<" + b"<" * 9999)


@contextmanager
def served(respond: Callable[[Handler], None]) -> Iterator[str]:
    class Stranger(Handler):
        def do_GET(self) -> None:  # noqa: N802 - its name there
            try:
                respond(self)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("respond", "why"),
    [
        (drip, "in time"),
        (drip_headers, "in time"),
        (endless, "too long|MiB|in time"),
        (lambda it: redirect(it, "file:///etc/passwd"), "redirects to 'file:///etc/passwd'|not allowed"),
        (lambda it: redirect(it, "ftp://elsewhere/"), "redirects to|not allowed"),
        (lambda it: redirect(it, "/torch/again/"), "redirect"),
        (lambda it: answer(it, b"[1, 2]", "application/json"), "PEP 691"),
        (lambda it: answer(it, b"[" * 100_000, "application/json"), "PEP 691"),
        (lambda it: it.send_error(500), "500"),
        (lambda it: it.wfile.write(b"\x00\xff not http\r\n\r\n"), "127.0.0.1"),
    ],
)
def test_a_stranger_neither_holds_up_nor_leads_astray(respond: Callable[[Handler], None], why: str) -> None:
    with served(respond) as url, pytest.raises(index.UnreachableError, match=why):
        index.wheels([(url, "torch")], seconds=0.5)


def test_a_host_without_an_address_has_one_text_on_every_system() -> None:
    with pytest.raises(index.UnreachableError, match=r"^no-such-host\.invalid: its name does not resolve"):
        index.wheels([("http://no-such-host.invalid/whl", "torch")], seconds=20)


def test_a_broken_page_has_no_wheels() -> None:
    with served(broken) as url:
        assert index.wheels([(url, "torch")]) == {(url, "torch"): []}


def test_nobody_there_leaves_it_unverified_and_says_so() -> None:
    with served(broken) as url:
        pass
    said = Indexes(url, url).verdict(Order(CANDIDATE, base=url), "3.12", "linux", "x86_64")
    assert said.lacks == ()
    assert said.summary.startswith("Not verified: 127.0.0.1: ")
    assert (
        Indexes(url, url, ask=False)
        .verdict(Order(CANDIDATE), "3.12", "linux", "x86_64")
        .summary.startswith("Not verified: no index was asked")
    )


def test_what_the_wheels_depend_on_and_nobody_said_is_named_with_the_command_that_says_it() -> None:
    found = stacks.stack(parse_machine("gpu=RTX 4090,driver=570"), shelves=Indexes())
    assert "Not verified: the wheels depend on python, os, arch, and nobody said which." in found.remarks
    command = "gpudoctor setup torch --for 'gpu=RTX 4090,driver=570,python=3.12,os=linux,arch=x86_64'"
    assert f"To have it verified, say which; for the usual ones: {command}" in found.remarks


def test_the_usual_architecture_is_asked_about_where_none_is_given() -> None:
    with served(broken) as url:
        pass
    found = stacks.stack(parse_machine("gpu=RTX 4090,driver=570,python=3.12,os=linux"), shelves=Indexes(url, url))
    assert found.remarks[0].startswith("Not verified: 127.0.0.1: ")
    assert found.remarks[1] == "Not given in --for, so the usual is taken: arch=x86_64."


@pytest.mark.parametrize(
    "url", ["file:///srv", "ftp://x/y", "pypi.org", "-x", "http://", "https://u:p@x/", "http://a b/"]
)
def test_what_is_no_index_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--index"):
        index.checked_base(url)
