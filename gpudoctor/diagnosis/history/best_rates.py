"""The best rate of each GPU and kernel that was ever measured on this machine, and what falls behind it.

Kept in ``best-rates.json`` beside the kept runs: by the GPU's UUID and the kernel, one entry for each driver, with its
date and the versions that it was measured under. A rate is compared with that of the same driver where there is one,
else with the last one; never where the GPU's clock was another one then.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from gpudoctor.core import files
from gpudoctor.core.fact import Absent, Known, Row, Unread, listed, number_of, text_of, value_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.history import Shelf

NAME = "best-rates.json"
SCHEMA = "gpudoctor-best-rates/1"
_MOST_KEYS, _MOST_DRIVERS = 4096, 4
_LARGEST_FILE_BYTES = 4 << 20
_SAME_CLOCK_SHARE = 0.03
"""Share by which the clocks of two runs may differ for their rates to be compared."""
_STACK = {
    "driver": "driver.version",
    "running kernel": "host.kernel",
    "BIOS": "host.bios",
    "torch": "torch.version",
}
_FIRMWARE = {"VBIOS": "vbios", "InfoROM": "inforom"}
"""What may explain another rate: versions by name, of the machine and of the GPU."""
_SOURCE = f"gpudoctor's kernels, and {NAME}"

_Entry = Mapping[str, Any]


def with_best(snapshot: Snapshot, shelf: Shelf | None) -> Snapshot:
    """The snapshot with the group ``best``: each rate measured now beside the best kept before.

    Also stores each better rate in the file of best rates. The group is absent where nothing was measured before at the
    same clock, or `shelf` is None (history is off); the snapshot is unchanged where no kernel was measured.
    """
    if not isinstance(snapshot.rows("measured"), tuple):
        return snapshot
    if shelf is None:
        return _with_rows(snapshot, Absent("no history is kept"))
    kept = _load(shelf)
    rows = []
    for key, run, entry in list(_measured_now(snapshot)):
        past = kept.setdefault(key, {})
        if row := _compared(run, entry, past):
            rows.append(row)
        driver = entry["stack"].get("driver", "")
        if driver not in past or entry["value"] > past[driver]["value"]:
            past[driver] = entry
    with suppress(OSError):
        _store(shelf, kept)
    return _with_rows(snapshot, tuple(rows) or Absent("no rate was measured here before"))


def _with_rows(snapshot: Snapshot, rows: tuple[Row, ...] | Absent) -> Snapshot:
    """The snapshot with these rows, or that absence, as its group ``best``."""
    return replace(snapshot, groups={**snapshot.groups, "best": rows})


def _measured_now(snapshot: Snapshot) -> Iterator[tuple[str, Row, _Entry]]:
    """(``UUID|kernel``, row, entry to keep) of each rate that a GPU reached alone and with right values.

    The row has ``nvml`` and ``uuid`` added. The entry has ``value``, ``at`` (now, Unix seconds), ``stack`` (versions by
    name) and, if known, ``clock``. Training and GPUs without UUID are left out.
    """
    uuids = {value_of(row.get("index")): text_of(row.get("uuid")) for row in listed(snapshot.rows("cuda_device"))}
    gpus = {text_of(row.get("uuid")): row for row in listed(snapshot.rows("gpu"))}
    stack = {name: snapshot.text(fact) for name, fact in _STACK.items() if snapshot.text(fact)}
    for row in listed(snapshot.rows("measured")):
        uuid, value = uuids.get(value_of(row.get("gpu")), ""), number_of(row.get("value"))
        details = value_of(row.get("details"))
        alone = not isinstance(details, Mapping) or details.get("alone") is not False
        plain = text_of(row.get("unit")).endswith("/s") and value_of(row.get("rung")) != "training"
        if not uuid or not value or not plain or not alone or value_of(row.get("right")) is False:
            continue
        gpu = gpus.get(uuid, {})
        own = {name: text_of(gpu.get(column)) for name, column in _FIRMWARE.items() if text_of(gpu.get(column))}
        entry = {"value": value, "at": time.time(), "stack": {**stack, **own}}
        if clock := number_of(row.get("sm_clock_mhz")):
            entry["clock"] = clock
        place = {"nvml": gpu.get("index") or Unread("NVML does not list it"), "uuid": Known(uuid, "CUDA")}
        yield f"{uuid}|{text_of(row.get('kernel'))}", {**row, **place}, entry


def _compared(run: Row, entry: _Entry, past: Mapping[str, _Entry]) -> Row | None:
    """Row of ``best``: a rate measured now beside the kept one of the same driver, else the latest of another.

    `past` has kept entries by driver. None without one, or where the GPU's clock was another then.
    """
    driver = entry["stack"].get("driver", "")
    best = past.get(driver) or max(past.values(), key=lambda one: float(one["at"]), default=None)
    if best is None or not _same_clock(entry, best):
        return None
    share = entry["value"] / best["value"]
    then, now = best["stack"], entry["stack"]
    changed = [f"{name} {then[name]} -> {now[name]}" for name in now if name in then and then[name] != now[name]]
    values = {
        "kernel": text_of(run.get("kernel")),
        "name": text_of(run.get("device")),
        "value": entry["value"],
        "unit": text_of(run.get("unit")),
        "best": best["value"],
        "share": round(share * (1 + (number_of(run.get("spread")) or 0)), 4),
        "date": time.strftime("%Y-%m-%d", time.gmtime(best["at"])),
        "changed": tuple(changed),
    }
    return {
        "gpu": run["nvml"],
        "uuid": run["uuid"],
        **{name: Known(value, _SOURCE) for name, value in values.items()},
    }


def _same_clock(one: _Entry, other: _Entry) -> bool:
    """Whether both ran at clocks that differ by at most 3 %; True where one is not known."""
    clocks = [float(entry["clock"]) for entry in (one, other) if "clock" in entry]
    return len(clocks) < 2 or abs(clocks[0] - clocks[1]) <= _SAME_CLOCK_SHARE * max(clocks)


def _load(shelf: Shelf) -> dict[str, dict[str, _Entry]]:
    """Kept entries by key (``UUID|kernel``) and driver; empty without a file, or if it is damaged, too large or another
    user's.
    """
    place = shelf.folder / NAME
    try:
        if files.foreign(place) or place.stat().st_size > _LARGEST_FILE_BYTES:
            return {}
        raw = json.loads(place.read_text("utf-8"))
        rates = raw["rates"] if raw["schema"] == SCHEMA else {}
        return {
            str(key): {str(driver): entry for driver, entry in drivers.items() if _is_entry(entry)}
            for key, drivers in rates.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _is_entry(raw: object) -> bool:
    """Whether it is a kept entry: versions by name under ``stack``, positive numbers for value, time and any clock."""
    if not isinstance(raw, dict) or not isinstance(raw.get("stack"), dict):
        return False
    numbers = [raw.get("value"), raw.get("at"), raw.get("clock", 1.0)]
    texts = all(isinstance(text, str) for text in raw["stack"].values())
    return texts and all(isinstance(n, (int, float)) and math.isfinite(n) and n > 0 for n in numbers)


def _store(shelf: Shelf, kept: Mapping[str, Mapping[str, _Entry]]) -> None:
    """Write all entries atomically, in a private folder; of too many keys and drivers the oldest are dropped.

    Raises `OSError`.
    """

    def newest(drivers: Mapping[str, _Entry]) -> float:
        """The time, Unix seconds, of a key's newest entry; 0 without entries."""
        return max((float(entry["at"]) for entry in drivers.values()), default=0.0)

    keys = sorted(kept, key=lambda key: newest(kept[key]), reverse=True)[:_MOST_KEYS]
    rates = {
        key: dict(sorted(kept[key].items(), key=lambda pair: -float(pair[1]["at"]))[:_MOST_DRIVERS]) for key in keys
    }
    if not shelf.folder.is_dir():
        files.make_private(shelf.folder)
    data = json.dumps({"schema": SCHEMA, "rates": rates}, separators=(",", ":")).encode()
    files.put(shelf.folder / NAME, data, 0o600)
