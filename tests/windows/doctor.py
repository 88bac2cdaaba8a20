"""One Windows process that diagnoses many machines, and the event log that Wine has not."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests import needs
from tests.processes import Ran
from tests.windows.rig import COMPILER, NATIVE, Windows

_OVERRIDES = "mscoree=d;mshtml=d;winedbg.exe=d;wevtapi=n,b"


def event(number: int, *texts: str, provider: str = "nvlddmkm", minutes: float = 5.0) -> str:
    """An event of the system's log as Windows renders one, logged so many minutes ago."""
    logged = datetime.now(timezone.utc) - timedelta(minutes=minutes)
    data = "".join(f"<Data>{text}</Data>" for text in texts)
    return (
        "<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System>"
        f"<Provider Name='{provider}'/><EventID Qualifiers='49322'>{number}</EventID><Level>2</Level>"
        f"<TimeCreated SystemTime='{logged:%Y-%m-%dT%H:%M:%S}.1234567Z'/><EventRecordID>4711</EventRecordID>"
        f"<Channel>System</Channel><Computer>BOX</Computer><Security/></System><EventData>{data}"
        "<Binary>0000000002003000</Binary></EventData></Event>"
    )


class Doctor:
    """gpudoctor in one process of that machine, told by standard input what to do."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        library = windows.folder / "dll/wevtapi.dll"
        source = NATIVE / "wevtapi.c"
        if not library.is_file() or library.stat().st_mtime < source.stat().st_mtime:
            argv = [COMPILER, "-Wall", "-Wextra", "-Werror", "-shared", "-o", str(library), str(source)]
            subprocess.run(argv, check=True)
        shutil.copyfile(library, windows.system / "wevtapi.dll")
        self._process = subprocess.Popen(
            [needs.program("wine"), "D:\\py\\python.exe", "-m", "tests.windows.there.diagnose"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**windows._environ(), "WINEDLLOVERRIDES": _OVERRIDES, "PYTHONUTF8": "1"},
            cwd=windows.folder,
            text=True,
            encoding="utf-8",
        )

    def events(self, events: Sequence[str]) -> None:
        """Have the log hold these events; ``refused`` for one that may not be read."""
        (self._windows.system / "events.xml").write_text("\n".join(events), "utf-8")

    def check(self, words: Sequence[str], environ: Mapping[str, str]) -> Ran:
        """What ``gpudoctor check`` says."""
        assert self._process.stdin
        assert self._process.stdout
        asked = {"words": ["check", "--json", *words], "environ": dict(environ)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Ran(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process, and leave the log as Wine has it."""
        self._process.communicate(timeout=600)
        (self._windows.system / "events.xml").unlink(missing_ok=True)

    def left(self) -> list[str]:
        """The command lines of children that still run."""
        return [line for line in _command_lines(self._windows.folder) if "ask_" in line or "nvidia-smi" in line]


def _command_lines(folder: Path) -> list[str]:
    """The command lines of processes that run in that folder's Wine."""
    lines: list[Any] = []
    mark = f"WINEPREFIX={folder}/prefix".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "environ").read_bytes().split(b"\0"):
                lines.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return lines
