"""The figures that `tests.bench.peers` measured last: kept in figures.toml, shown in comparison.md."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudoctor.diagnosis.page_cache import toml

FILE = Path(__file__).with_name("figures.toml")
OURS = "gpudoctor check --level quick --json"
PYZ = "the same by gpudoctor.pyz"
COLLECT_ENV = "torch.utils.collect_env"
LIMITS = {"collect_env": 0.08, "fastest": 1.2, "pyz": 1.5, "core": 20.0, "whole": 40.0}
"""Of the wall times of collect_env, of the fastest doctor that judges, of ours; MB without Textual and with it."""


def stored() -> str:
    """The tables of the figures that are kept."""
    kept = toml(FILE)
    return "\n\n".join([table(kept), *([own_table(kept["own"])] if "own" in kept else [])])


def table(told: Mapping[str, Any]) -> str:
    """The figures in Markdown: times beside collect_env's, taken in one run."""
    rows = told["program"]
    unit = next(row["seconds"] for row in rows if row["name"] == COLLECT_ENV)
    lines = [
        "| program | wall time | of collect_env's | memory | installed | modules | torch's CPU build |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (not row["name"].startswith(("gpudoctor", "the same")), row["seconds"])):
        size = f"{row['mb']:.1f} MB" if row["mb"] else ""
        cells = (f"{row['seconds']:.3f} s", f"{row['seconds'] / unit:.2f}", f"{row['mib']:.0f} MiB", size)
        lines.append(f"| `{row['name']}` | {' | '.join(cells)} | {row['modules']} | {row['says']} |")
    where = f"{told['date']}, {told['machine']}; medians of {told['runs']} runs taken in turn"
    ours = next(row["seconds"] for row in rows if row["name"] == OURS)
    left = f"{told['at_once_seconds']:.3f} s, {told['at_once_seconds'] / unit:.2f} of collect_env's"
    why = (
        f"`{OURS}` may take {LIMITS['collect_env']:g} of collect_env's time, and takes {ours / unit:.2f}: it makes some"
        " 830 calls of NVML to the eight GPUs, each of 0.3 ms as a real driver's. Where they answer at once it is"
        f" {left}; half of that imports and compiles."
    )
    return f"{where}.\n\n" + "\n".join(lines) + (f"\n\n{why}" if ours > LIMITS["collect_env"] * unit else "")


def own_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What our own commands cost beside what they may, in Markdown; where it is more, where the time goes."""
    lines = ["| what it costs | figure | limit | |", "|---|---|---|---|"]
    for row in rows:
        over = row["why"] if row["figure"] > row["limit"] else ""
        lines.append(f"| {row['name']} | {row['figure']:g} {row['unit']} | {row['limit']:g} | {over} |")
    return "\n".join(lines)


def ratios(told: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """What is promised: its name, the figure, the limit."""
    seconds = {row["name"]: row["seconds"] for row in told["program"]}
    judging = {
        row["name"]: row["seconds"] for row in told["program"] if row["judges"] and row["name"] not in (OURS, PYZ)
    }
    found = [("of collect_env's wall time", seconds[OURS] / seconds[COLLECT_ENV], LIMITS["collect_env"])]
    if judging:
        fastest = min(judging, key=judging.__getitem__)
        found.append(
            (f"of that of the fastest that judges, {fastest}", seconds[OURS] / judging[fastest], LIMITS["fastest"])
        )
    if PYZ in seconds:
        found.append(("of the installed program's: the pyz", seconds[PYZ] / seconds[OURS], LIMITS["pyz"]))
    whole = next(row["mb"] for row in told["program"] if row["name"] == OURS)
    return [*found, ("MB without Textual", told["core_mb"], LIMITS["core"]), ("MB in all", whole, LIMITS["whole"])]


def write(told: Mapping[str, Any]) -> None:
    """Keep the figures of the programs, beside those of our own commands."""
    _write({**told, "own": toml(FILE).get("own", [])})


def write_own(rows: Sequence[Mapping[str, Any]]) -> None:
    """Keep the figures of our own commands, beside those of the programs and of other commands."""
    kept = toml(FILE)
    _write({**kept, "own": list({row["name"]: row for row in (*kept.get("own", ()), *rows)}.values())})


def _write(figures: Mapping[str, Any]) -> None:
    lines = ["# Made by: python -m tests.bench.peers --write, and python -m tests.bench.own --write"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in figures.items() if name not in ("program", "own")]
    for name in ("program", "own"):
        for row in figures.get(name, ()):
            lines += [f"\n[[{name}]]", *(f"{key} = {json.dumps(value)}" for key, value in row.items())]
    FILE.write_text("\n".join(lines) + "\n", "utf-8")
