"""Lines of a manifest that decide no fact: what is compiled on the machine, what no line pins, what is left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from gpudoctor.knowledge._filling import text
from gpudoctor.knowledge._tables import table
from gpudoctor.knowledge.manifests.lines import Line
from gpudoctor.knowledge.manifests.pip_takes import pinned
from gpudoctor.model.fact import Fact, Known, Row

_MOST = 200


def silent(
    rows: Sequence[Row], lines: Sequence[Line], placed: Collection[str], unsure: Sequence[str]
) -> Iterator[tuple[str, Fact]]:
    """What is to be said of lines that have told nothing.

    `placed` are the packages whose version is told, `unsure` says of some whether they are for the machine.
    """
    source = "the manifest"
    compiled = {line.name: f"{line.name} ({line.source})" for line in lines if _compiled(line)}
    if compiled:
        yield "manifest.compiled", Known(tuple(compiled.values())[:_MOST], source)
    loose = [line.name for line in lines if line.name not in {*placed, *compiled} and not pinned(line.spec)]
    if loose:
        yield "manifest.loose", Known(tuple(dict.fromkeys(loose))[:_MOST], source)
    there = {line.name for line in lines}
    asked = (row for row in rows if text(row, "name") not in there)
    left = {name: _why(row) for row in asked if not _open(name := text(row, "name"), unsure)}
    if left:
        yield "manifest.left_out", Known(tuple(f"{name} ({why})" for name, why in left.items())[:_MOST], source)


def _compiled(line: Line) -> bool:
    """Whether pip gets its source; a wheel that the line names, and conda, bring it compiled."""
    return (
        not line.url
        and line.installer != "conda"
        and line.name in {row["name"] for row in table("companions")["sdists"]}
    )


def _why(row: Row) -> str:
    if extra := text(row, "extra"):
        return f"the extra {extra}"
    return text(row, "marker")


def _open(name: str, unsure: Sequence[str]) -> bool:
    return any(one.startswith(f"whether {name} is") for one in unsure)
