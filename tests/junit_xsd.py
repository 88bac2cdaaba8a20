"""What the XML Schema of Jenkins' xunit plugin says of a JUnit file, as facts; GitLab reads the same elements.

Source: junit-10.xsd of jenkinsci/xunit-plugin (read 2026-11-22): attributes that an element must have and may have, and
its children. There is no ``properties`` in a testcase.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

_OUTCOME: tuple[set[str], set[str], set[str]] = (set(), {"type", "message"}, set())
_COUNTS = {"tests", "failures", "errors"}
_KINDS: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", *_COUNTS}, {"testsuite"}),
    "testsuite": (
        {"name", *_COUNTS},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": ({"name"}, {"time", "classname", "group"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    "failure": _OUTCOME,
    "error": _OUTCOME,
    "skipped": _OUTCOME,
    "system-out": (set(), set(), set()),
    "system-err": (set(), set(), set()),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
}
_TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def misfits(text: str) -> list[str]:
    """What in the document the schema does not allow; raises `ElementTree.ParseError` for what is no XML."""
    root = ElementTree.fromstring(text)
    found = [] if root.tag == "testsuites" else [f"{root.tag} is the root"]
    for element in root.iter():
        if element.tag not in _KINDS:
            found.append(f"<{element.tag}> is unknown")
            continue
        needed, more, children = _KINDS[element.tag]
        found += [f"<{element.tag}> lacks {name}" for name in needed - set(element.keys())]
        found += [f"<{element.tag}> has {name}" for name in set(element.keys()) - needed - more]
        found += [f"<{element.tag}> holds <{child.tag}>" for child in element if child.tag not in children]
        found += [f"time {time!r}" for time in [element.get("time", "")] if not _TIME.fullmatch(time)]
        if children and any((words or "").strip() for words in (element.text, *(child.tail for child in element))):
            found.append(f"<{element.tag}> holds text")
    return found
