"""Measurements out of their JSON document, every value checked."""

from __future__ import annotations

from typing import cast

from gpudoctor.model.document import Entry, entry, opened
from gpudoctor.model.measurement import (
    SCHEMA,
    Device,
    Expected,
    Kernel,
    Level,
    Meanwhile,
    Measurements,
    Run,
    Rung,
    Status,
    Step,
)


def from_json(raw: object) -> Measurements:
    """The inverse of `Measurements.to_json`; raises `DocumentError`."""
    document = opened(raw, SCHEMA)
    return Measurements(
        target=document.text("target", ""),
        at=document.text("at", ""),
        kernels=tuple(
            Kernel(
                item.text("id"),
                item.text("title"),
                item.text("unit", ""),
                item.text("size", ""),
                cast(Level, item.choice("level", Level, "standard")),
                cast(Rung, item.choice("rung", Rung, "torch")),
            )
            for item in document.entries("kernels")
        ),
        devices=tuple(
            Device(item.whole("index"), item.text("name", ""), item.text("held", ""), item.text("uuid", ""))
            for item in document.entries("devices")
        ),
        runs=tuple(map(_run, document.entries("runs"))),
    )


def _run(item: Entry) -> Run:
    expected, meanwhile = item.entry("expected"), item.entry("meanwhile")
    return Run(
        kernel=item.text("kernel"),
        gpu=item.whole("gpu"),
        status=cast(Status, item.choice("status", Status)),
        value=item.maybe("value"),
        spread=item.maybe("spread"),
        expected=_expected(expected) if expected else None,
        right=item.flag("right"),
        differ=item.maybe_whole("differ"),
        compared=item.maybe_whole("compared"),
        words=item.text("words", ""),
        because=item.text("because", ""),
        advice=item.text("advice", ""),
        details=item.mapping("details"),
        ladder=tuple(
            Step(cast(Rung, step.choice("rung", Rung)), step.flag("held"), step.text("message", ""))
            for step in item.entries("ladder")
        ),
        meanwhile=_meanwhile(meanwhile) if meanwhile else None,
    )


def _expected(item: Entry) -> Expected:
    return Expected(
        value=item.number("value"),
        how="table" if item.text("how", "table") == "table" else "siblings",
        limit=item.maybe("limit"),
        fraction=item.maybe("fraction"),
        words=item.text("words", ""),
        source=item.text("source", ""),
    )


def meanwhile(raw: object) -> Meanwhile | None:
    """What a document says of a GPU while a kernel ran, if it says anything; raises `DocumentError`."""
    return None if raw is None else _meanwhile(entry(raw))


def _meanwhile(item: Entry) -> Meanwhile:
    return Meanwhile(
        sm_clock_mhz=item.maybe("sm_clock_mhz"),
        max_sm_clock_mhz=item.maybe("max_sm_clock_mhz"),
        power_w=item.maybe("power_w"),
        power_limit_w=item.maybe("power_limit_w"),
        temperature_c=item.maybe("temperature_c"),
        reasons=item.texts("reasons"),
        link_generation=item.maybe("link_generation"),
        link_width=item.maybe("link_width"),
        utilization=item.maybe("utilization"),
        ecc_corrected=item.maybe("ecc_corrected"),
        ecc_uncorrected=item.maybe("ecc_uncorrected"),
    )
