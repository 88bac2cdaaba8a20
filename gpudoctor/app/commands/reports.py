"""Shared by commands: a diagnosis in each ``--format``, the machine of ``--for``, and ``--share``."""

from __future__ import annotations

import argparse
import io
import sys
import time
from typing import TextIO, TypeVar

from gpudoctor.app import output, pipeline
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import GRANTED, Known
from gpudoctor.core.frozen import replace
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.views import document
from gpudoctor.views._terminal import style_of


def stream_of(out: str | None) -> TextIO:
    """The stream whose style the text is for: standard output, or a colourless buffer for a file."""
    return sys.stdout if out is None or out == "-" else io.StringIO()


def rendered(
    diagnosis: Diagnosis, form: str | None, stream: TextIO, strict: bool = False, seconds: float | None = None
) -> str:
    """The diagnosis as text styled for `stream` (`form` None or text), json, markdown, html, junit or prometheus.

    `strict`: warnings are failures in junit. `seconds` is how long the diagnosis took, for prometheus. A fleet has a
    text form of its own.
    """
    if form == "junit":
        from gpudoctor.views import junit

        return junit.render(diagnosis, strict)
    if form == "prometheus":
        from gpudoctor.views import prometheus

        return prometheus.render(diagnosis, time.time(), seconds)
    if form == "json":
        return document.render(diagnosis)
    if form == "markdown":
        from gpudoctor.views import markdown

        return markdown.render(diagnosis)
    if form == "html":
        return html_of(diagnosis)
    if diagnosis.fleet and diagnosis.snapshot.target.kind == "fleet":
        from gpudoctor.views import fleet

        return fleet.render(diagnosis, diagnosis.fleet, style_of(stream))
    from gpudoctor.views import text

    return text.render(diagnosis, style_of(stream))


def html_of(diagnosis: Diagnosis, cell: bool = False) -> str:
    """The diagnosis as an HTML page, or as what a notebook shows under a cell, with what kernels measured."""
    from gpudoctor.kernels.ladder import measurements
    from gpudoctor.views import html

    return (html.cell if cell else html.render)(diagnosis, measurements(diagnosis.snapshot))


# ---- The machine that ``--for`` names ----
# Described in words, or ``here``, this one.

HERE = "here"
_OF_THE_MACHINE = ("driver", "gpu", "host", "nvml", "pci")
"""Topics of facts that are the machine's, whatever is installed on it."""
_ASSUMED_PLATFORM = {"host.platform": "linux", "host.arch": "x86_64"}
"""What a machine is that is described without a word of it."""


def machine_of(description: str) -> Snapshot | None:
    """The facts of the machine described (``here``: this one); None for an empty text.

    Linux on x86_64 is assumed where the text gives no platform. Raises `UsageError` if it cannot be understood.
    """
    if not description:
        return None
    if description.strip() == HERE:
        return _this_machine()
    from gpudoctor.fixes.solver import described_machine

    snapshot = described_machine.snapshot_of(described_machine.parse_machine(description))
    assumed = {name: Known(value, GRANTED) for name, value in _ASSUMED_PLATFORM.items()}
    return replace(snapshot, facts={**assumed, **snapshot.facts})


def _this_machine() -> Snapshot:
    """The facts of this machine that a manifest's packages do not change: GPUs, driver, system, Python."""
    snapshot = pipeline.look("quick")
    facts = {
        name: fact
        for name, fact in snapshot.facts.items()
        if name.partition(".")[0] in _OF_THE_MACHINE or name == "python.version"
    }
    groups = {name: rows for name, rows in snapshot.groups.items() if name in _OF_THE_MACHINE}
    return replace(snapshot, facts=facts, groups=groups, target=replace(snapshot.target, name="this machine"))


# ---- ``--share`` ----
# What is printed or written passes through here before a view sees it.

T = TypeVar("T")


def shared(value: T, options: argparse.Namespace) -> T:
    """The value unchanged or, with ``--share``, without personal data; how much of each kind was hidden is printed to
    stderr.
    """
    if not options.share:
        return value
    from gpudoctor.app.redaction import Redactor

    sharing = Redactor()
    result = sharing(value)
    output.put_message(sharing.summary)
    return result
