"""No home, no room for temporary files, no shared memory: every command ends truly, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests import needs
from tests.processes import finished

pytestmark = pytest.mark.full

PROGRAM = (sys.executable, "-m", "gpudoctor")
COMMANDS = (
    ("check", "--json"),
    ("snapshot", "--level", "quick"),
    ("record", "--level", "quick"),
    ("fix", "--dry-run"),
    ("bench", "--device", "cpu", "--kernel", "driver.add"),
    ("expect", "--from-here"),
    ("diff", "--last"),
)


def ended(argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
    kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    ran = finished(argv, cwd=folder, env={**kept, **environ})
    assert "Traceback" not in ran.err + ran.out
    assert "itself failed" not in ran.err + ran.out
    assert ran.code in {0, 1, 2, 3}, ran.err


def test_every_command_ends_without_home_and_temporary_files(tmp_path: Path) -> None:
    for command in COMMANDS:
        ended((*PROGRAM, *command), {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"}, tmp_path)


BARE_DEV = """
mount --rbind /dev /mnt
mount -t tmpfs none /dev
for name in null zero urandom; do touch /dev/$name; mount --bind /mnt/$name /dev/$name; done
exec "$@"
"""
READ_ONLY = 'for folder in /tmp /var/tmp; do mount -t tmpfs -o ro none "$folder"; done; exec "$@"'


@pytest.mark.parametrize("script", [BARE_DEV, READ_ONLY], ids=["no /dev/shm", "/tmp cannot be written"])
def test_in_a_namespace_without_it(script: str) -> None:
    enter = [needs.program("unshare"), "--map-root-user", "--mount", "sh", "-euc", script, "sh"]
    if subprocess.run([*enter, "true"], check=False, capture_output=True).returncode:
        needs.missing("a user namespace in which folders can be mounted")
    for command in COMMANDS:
        ended([*enter, *PROGRAM, *command], {"HOME": "/nonexistent"}, Path("/"))
