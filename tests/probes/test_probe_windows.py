"""What the child that asks Windows answers, read into facts: recorded answers, sound ones and such as were refused."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Fact, Known, Reason, Rows, Unread, value_of
from gpudoctor.probes import windows
from gpudoctor.target import Answer
from gpudoctor.target.local import Local
from gpudoctor.target.protocol import MARK

SETTINGS = {
    "secure_boot": 1,
    "long_paths": 1,
    "tdr_delay": None,
    "tdr_ddi_delay": None,
    "tdr_level": None,
    "remote": False,
    "gpu_scheduling": 2,
    "app_control": 0,
    "controlled_folders": 1,
    "hyper_v": 2,
    "wsl": 2,
    "preferences": {"C:\\Users\\Jürgen 模型\\venv\\Scripts\\python.exe": "GpuPreference=2;"},
}
REFUSED = {"refused": r"SYSTEM\CurrentControlSet\Control\GraphicsDrivers: Access is denied"}
GIB = 1 << 30
MEMORY = {"physical": 16 * GIB, "commit_limit": 17 * GIB, "commit_left": GIB // 4}


class Recorded(Local):
    """A machine on which the child gives recorded answers; an answer that is an exception is the child's error."""

    def __init__(self, replies: Mapping[str, Any], python: str = "", how: int | None = 0) -> None:
        super().__init__(environ={})
        self.system = "windows"
        self._replies, self._patient, self._how = replies, python, how

    @property
    def python(self) -> str | None:
        return self._patient or None

    def run(self, argv: Any, *_: Any, **__: Any) -> Answer:
        lines = []
        for name, reply in self._replies.items():
            said = {"text": f"OSError: {reply}"} if isinstance(reply, Exception) else {"is": reply}
            lines += [{"ask": name}, {"call": name, **said}]
        out = "".join(f"{MARK}{json.dumps(line)}\n" for line in lines)
        return Answer(tuple(argv), self._how, out, "", 15.0)


def read(target: Recorded) -> dict[str, Fact | Rows]:
    return dict(windows.probe(target))


def event(number: int, provider: str, *texts: str, hours: float = 1.0) -> str:
    logged = datetime.now(timezone.utc) - timedelta(hours=hours)
    data = "".join(f"<Data>{text}</Data>" for text in texts)
    return (
        f"<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System><Provider Name='{provider}'/>"
        f"<EventID>{number}</EventID><TimeCreated SystemTime='{logged:%Y-%m-%dT%H:%M:%S}.7000000Z'/></System>"
        f"<EventData>{data}</EventData></Event>"
    )


def test_settings_by_name() -> None:
    facts = read(Recorded({"settings": SETTINGS}, "C:/Users/jürgen 模型/venv/Scripts/python.exe"))
    assert {name: fact.value for name, fact in facts.items() if isinstance(fact, Known)} == {
        "host.platform": "windows",
        "host.secure_boot": True,
        "windows.long_paths": True,
        "windows.tdr_off": False,
        "windows.tdr_delay_s": 2,
        "windows.tdr_ddi_delay_s": 5,
        "windows.gpu_scheduling": True,
        "windows.app_control": "off",
        "windows.controlled_folders": "on",
        "windows.hyper_v": True,
        "windows.remote_session": False,
        "windows.wsl_installed": True,
        "windows.wsl_version": 2,
        "windows.gpu_preference": "high performance",
    }


def test_what_is_not_set_has_windows_own_value() -> None:
    facts = read(Recorded({"settings": {**dict.fromkeys(SETTINGS), "preferences": {}, "remote": True}}))
    assert facts["windows.tdr_delay_s"] == Known(2, "GraphicsDrivers: TdrDelay is not set: the default")
    assert facts["windows.long_paths"] == Known(False, "not set, which means off")
    assert facts["windows.wsl_installed"] == Known(False, "registry: Lxss")
    for name in ("windows.gpu_scheduling", "windows.app_control", "windows.wsl_version", "windows.gpu_preference"):
        assert isinstance(facts[name], Absent), name


@pytest.mark.parametrize("name", sorted(SETTINGS.keys() - {"preferences", "remote"}))
def test_a_key_that_may_not_be_read_leaves_one_fact_unread(name: str) -> None:
    facts = read(Recorded({"settings": {**SETTINGS, name: REFUSED}}))
    unread = {fact for fact in facts.values() if isinstance(fact, Unread) and fact.reason is Reason.DENIED}
    assert {fact.why for fact in unread} == {f"registry: {REFUSED['refused']}"}
    assert isinstance(facts["windows.remote_session"], Known)


def test_what_may_be_committed_and_numbers_without_a_name() -> None:
    facts = read(Recorded({"memory": MEMORY}))
    assert facts["windows.commit_left_mib"] == Known(256, "GlobalMemoryStatusEx")
    assert facts["windows.page_file_mib"] == Known(1024, "GlobalMemoryStatusEx")
    facts = read(Recorded({"settings": {**SETTINGS, "gpu_scheduling": 7, "app_control": 9}}))
    assert isinstance(facts["windows.gpu_scheduling"], Unread)
    assert isinstance(facts["windows.app_control"], Unread)


def test_the_events_of_the_driver() -> None:
    logged = [
        event(153, "nvlddmkm", r"\Device\Video3", "Resetting TDR occurred on GPUID:2d00"),
        event(14, "nvlddmkm", r"\Device\Video3"),
        event(4101, "Display", "nvlddmkm", ""),
        event(4101, "Display", "amdwddmg", ""),
        event(13, "nvlddmkm"),
        "<Event>",
        "<Event/>",
        "",
    ]
    rows = read(Recorded({"events": logged}))["driver_event"]
    assert isinstance(rows, tuple)
    assert [(value_of(row["id"]), value_of(row["is_reset"])) for row in rows] == [
        (153, True),
        (14, False),
        (4101, True),
        (13, False),
    ]
    assert rows[0]["text"] == Known(
        r"\Device\Video3 Resetting TDR occurred on GPUID:2d00", "event log: System, nvlddmkm 153"
    )
    assert isinstance(rows[3]["text"], Absent)
    assert isinstance(age := value_of(rows[0]["age_s"]), int)
    assert 3599 <= age < 4200


def test_a_child_or_log_that_does_not_answer_takes_nothing_along() -> None:
    facts = read(Recorded({"memory": MEMORY, "events": OSError("EvtQuery: Access denied.")}))
    assert facts["driver_event"] == Unread("Windows: OSError: EvtQuery: Access denied.")
    assert isinstance(facts["host.memory_mib"], Known)
    facts = read(Recorded({"memory": MEMORY}, how=None))
    assert facts["host.memory_mib"] == Known(16384, "GlobalMemoryStatusEx")
    for group in ("path_dll", "driver_event", "display"):
        assert facts[group] == Unread("the child that asks Windows ended at memory: stopped after 15 s")


def test_of_dlls_with_one_name_the_first_on_path_is_loaded() -> None:
    new, old = "C:\\CUDA\\v12.8\\bin\\cudart64_12.dll", "\\\\server\\CUDA\\bin\\cudart64_12.dll"
    dlls = [{"name": "cudart64_12.dll", "path": new}, {"name": "cudart64_12.dll", "path": old}]
    rows = read(Recorded({"path_dlls": dlls}))["path_dll"]
    assert isinstance(rows, tuple)
    assert [(row["path"], row["first"]) for row in rows] == [
        (Known(new, "PATH"), Known(True, "PATH")),
        (Known(old, "PATH"), Known(False, "PATH")),
    ]
    assert isinstance(read(Recorded({"path_dlls": []}))["path_dll"], Absent)
