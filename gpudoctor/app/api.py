"""What ``import gpudoctor`` offers: the path from a machine or a text to a diagnosis that shows itself."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from gpudoctor.app import output, pipeline, reading
from gpudoctor.app.commands.reports import html_of, rendered
from gpudoctor.app.output import exit_code
from gpudoctor.app.redaction import shared
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.snapshot import Level
from gpudoctor.readers import read_file

Form = Literal["text", "json", "markdown", "html", "junit", "prometheus"]


class Report(Diagnosis):
    """A diagnosis that shows itself: as a page in a notebook, as the text report where it is printed.

    `verdict` is ``sound``, ``impaired`` (warnings), ``broken`` (errors) or ``unknown`` (too little could be read);
    `findings` are in the order to act on them. `to_json` gives the document that ``gpudoctor schema`` describes.
    """

    __slots__ = ()

    @property
    def exit_code(self) -> int:
        """Exit code of ``gpudoctor check``: 0 sound or only warnings, 1 an error was found, 3 no verdict possible."""
        return exit_code(self)

    def render(self, form: Form = "text", strict: bool = False) -> str:
        """The report in that form, without colour; `strict`: warnings are failures in ``junit``."""
        return rendered(self, form, io.StringIO(), strict)

    def save(self, path: str | os.PathLike[str], form: Form = "json") -> None:
        """Write the report to a file, atomically; raises `UsageError` where that cannot be done."""
        output.put(self.render(form), os.fspath(path))

    def shared(self) -> Report:
        """The report without personal data: names, hosts, serial numbers, UUIDs, addresses, secrets."""
        return shared(self)

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        counts = f"{len(self.findings)} found, {len(self.unjudged)} not judged, {len(self.passed)} passed"
        return f"<gpudoctor.Report of {self.snapshot.target.name!r}: {self.verdict}; {counts}>"

    def _repr_html_(self) -> str:
        """The report as HTML, as a notebook shows it under a cell."""
        return html_of(self, cell=True)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the report's text to IPython's `printer`, or only its `repr` where it contains itself (`cycle`)."""
        printer.text(repr(self) if cycle else str(self))


def check(
    level: Level = "standard",
    python: str | None = None,
    rules: Sequence[str | os.PathLike[str]] = (),
    expect: str | os.PathLike[str] | None = None,
) -> Report:
    """Diagnose this machine, as ``gpudoctor check`` does.

    `level`: ``quick`` only reads (well under a second), ``standard`` imports torch in a child process and runs a small
    kernel on each GPU (seconds), ``deep`` measures (minutes). `python` is the interpreter whose torch is meant; by
    default it is found: an active environment, then the first on PATH. `rules` are folders of a site's own pages,
    `expect` is a profile of what this machine must be: a file, or the name of one that ships.

    A sick machine raises nothing: what could not be read is among `Report.unjudged`. Raises `UsageError` for an
    interpreter or a profile that is none, `RuleError` for a broken page.
    """
    profile = None if expect is None else os.fspath(expect)
    return _report(pipeline.check(level, python, [Path(folder) for folder in rules], expect=profile))


def read(
    text: str,
    name: str = "report",
    rules: Sequence[str | os.PathLike[str]] = (),
    expect: str | os.PathLike[str] | None = None,
) -> Report:
    """Diagnose a text: a pasted report or log, a saved snapshot, a document of ``gpudoctor check --json``, a record.

    `name` is what the report calls it, `expect` a profile of what the machine must be. Raises `DocumentError` for a
    document that is broken.
    """
    profile = None if expect is None else os.fspath(expect)
    return _report(reading.read(text, name, [Path(folder) for folder in rules], expect=profile))


def load(
    path: str | os.PathLike[str],
    rules: Sequence[str | os.PathLike[str]] = (),
    expect: str | os.PathLike[str] | None = None,
) -> Report:
    """Diagnose a file, gzipped or not, as `read` does; raises `DocumentError` for one that cannot be read, is no text,
    or is too large.
    """
    return read(read_file(os.fspath(path)), os.fspath(path), rules, expect)


def _report(diagnosis: Diagnosis) -> Report:
    """The diagnosis as a `Report`, which shows itself in notebooks; all fields the same."""
    return Report(**{field.name: getattr(diagnosis, field.name) for field in fields(Diagnosis)})
