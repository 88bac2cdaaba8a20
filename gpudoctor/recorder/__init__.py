"""A machine as a file that answers for it: what the probes asked and were told, hidden where it is personal."""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpudoctor import doctor
from gpudoctor.hiding import Hider
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.document import brief
from gpudoctor.model.fact import Known, listed
from gpudoctor.model.measurement import vars_of
from gpudoctor.model.secrets import variable_shown
from gpudoctor.model.snapshot import Progress, Snapshot
from gpudoctor.recorder._children import Sections
from gpudoctor.recorder._files import files_of
from gpudoctor.target.record import Record
from gpudoctor.target.record_json import from_json, to_json
from gpudoctor.target.recording import Recording

_EXITS = {"sound": 0, "impaired": 0, "broken": 1, "unknown": 3}


def record(level: str, python: str | None, progress: Progress) -> str:
    """This machine as the text of a record; raises `DoctorError` for an interpreter that is none."""
    target = Recording(level, python)
    diagnosis = doctor.check(level, progress=progress, target=target)
    _keep_stuck(target, diagnosis.snapshot)
    return json.dumps(to_json(recorded(target, diagnosis)), ensure_ascii=True, indent=1)


def recorded(target: Recording, diagnosis: Diagnosis) -> Record:
    """The record of a machine that `target` watched; its replay must give `diagnosis` again."""
    seen = target.seen
    variables = _variables(target, diagnosis.snapshot)
    hider = Hider(target.name, [_user()])
    for text in (*seen.files, *seen.folders, *seen.links, *seen.links.values(), *_named(variables)):
        hider.learn(text)
    sections = Sections()
    commands = tuple(command for answer in seen.answers if (command := sections.take(answer)))
    files, sparse, left_out = files_of(seen)
    whole = Record(
        title=_title(diagnosis.snapshot),
        level=target.level,
        files={path: hider.raw(data) for path, data in files.items()},
        sparse={
            path: replace(kept, parts=tuple((at, hider.raw(data)) for at, data in kept.parts))
            for path, kept in sparse.items()
        },
        left_out=tuple(left_out),
        links=seen.links,
        folders=tuple(path for path in seen.folders if path != "/"),
        devices={path: word for path, word in seen.devices.items() if path not in seen.files},
        denied=tuple(sorted(seen.denied)),
        space=seen.space,
        times=seen.times,
        environ=variables,
        python=target.python,
        name="record",
        commands=commands,
        nvml=sections.nvml,
        cuda=sections.cuda,
        torch_child=sections.torch,
        kernels=_kernels(sections, diagnosis.snapshot),
        expect={
            "ids": [one.id for one in diagnosis.findings if one.severity != "info"],
            "exit": _EXITS[diagnosis.verdict],
        },
    )
    return _hidden(whole, hider)


def _hidden(whole: Record, hider: Hider) -> Record:
    """It without what is personal; in what is no text only paths have been looked at."""
    raw = to_json(whole)
    host = raw["host"]
    binary = {key: host.pop(key) for key in ("bytes", "sparse") if key in host}
    hidden = hider.json(raw)
    hidden["host"].update(
        {key: {hider.text(path): kept for path, kept in part.items()} for key, part in binary.items()}
    )
    return from_json(hidden)


def _kernels(sections: Sections, snapshot: Snapshot) -> dict[str, Any] | None:
    """What the children of a ladder said, and NVML meanwhile."""
    if not sections.children:
        return None
    from gpudoctor.kernels import recall

    found = recall.measurements(snapshot)
    seen = [
        {"kernel": run.kernel, "gpu": run.gpu, **brief(vars_of(run.meanwhile))}
        for run in (found.runs if found else ())
        if run.meanwhile
    ]
    return {"children": sections.children, **({"meanwhile": seen} if seen else {})}


def _keep_stuck(target: Recording, snapshot: Snapshot) -> None:
    """Processes are looked at past the target, as there are thousands; those that hang are kept."""
    for row in listed(snapshot.rows("stuck")):
        pid = row.get("pid")
        with suppress(OSError):
            target.read(f"/proc/{pid.value if isinstance(pid, Known) else ''}/stat")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _title(snapshot: Snapshot) -> str:
    """GPUs, driver and system, in a line."""
    rows = snapshot.rows("gpu")
    names = (
        [str(state.value) for row in rows if isinstance(state := row.get("name"), Known)]
        if isinstance(rows, tuple)
        else []
    )
    parts = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)] or ["no GPU"]
    for name, words in (("driver.version", "driver {}"), ("host.os", "{}"), ("torch.version", "torch {}")):
        fact = snapshot.get(name)
        if isinstance(fact, Known):
            parts.append(words.format(fact.value))
    return ", ".join(parts)


def _variables(target: Recording, snapshot: Snapshot) -> dict[str, str]:
    """The variables that were asked for, secrets hidden. PWD is the working folder, whatever its name smells of."""
    wanted = {name.removeprefix("env.") for name in snapshot.facts if name.startswith("env.")} | target.seen.variables
    given = {name: value for name, value in target.environ.items() if name in wanted}
    return {name: value if name == "PWD" else variable_shown(name, value) for name, value in given.items()}


def _named(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in variables.items()]
