"""gpudoctor names the cause when a GPU machine does not work.

The path, one folder a step::

    target -> probes -> Snapshot -> rules -> Diagnosis -> views, fixes

From Python::

    import gpudoctor

    report = gpudoctor.check("quick")           # a notebook shows it as it is; print(report) is the text
    report = gpudoctor.load("report.txt")       # what somebody else sent: a paste, a log, a saved document
    if report.verdict == "broken":
        first = report.findings[0]              # the root cause to act on first
        print(first.id, first.title)
        for fix in first.fixes:
            print(fix.title, [step.argv for step in fix.steps])
    report.save("gpu.xml", "junit")             # or text, json, markdown, html, prometheus
    raise SystemExit(report.exit_code)          # as `gpudoctor check` has it

A fact is `Known` (with its source), `Absent` (known not to be there) or `Unread`:
``report.snapshot.get("driver.version")``, ``report.snapshot.rows("gpu")``. In a training script
``gpudoctor.preflight()`` checks all ranks before the process group is made, and raises `NoGoError`;
``with gpudoctor.watch():`` around the training watches it, and says at its end why it failed, or what it used.

All names in ``__all__`` are stable inside major version 1, as are the JSON documents that ``gpudoctor schema``
describes. Nothing is imported before it is used; torch never is.
"""

from gpudoctor.core.about import __version__

TYPE_CHECKING = False  # as that of typing, which --version has no need of
if TYPE_CHECKING:
    from gpudoctor.app.api import Report, check, load, read
    from gpudoctor.app.in_training import NoGoError, Watching, callback, preflight, watch
    from gpudoctor.core.diagnosis import Diagnosis, Evidence, Finding, Unjudged
    from gpudoctor.core.errors import DoctorError, DocumentError, RuleError, UsageError
    from gpudoctor.core.fact import Absent, Known, Unread
    from gpudoctor.core.rule import Fix, Step
    from gpudoctor.core.snapshot import Snapshot

__all__ = [
    "Absent",
    "Diagnosis",
    "DoctorError",
    "DocumentError",
    "Evidence",
    "Finding",
    "Fix",
    "Known",
    "NoGoError",
    "Report",
    "RuleError",
    "Snapshot",
    "Step",
    "Unjudged",
    "Unread",
    "UsageError",
    "Watching",
    "__version__",
    "callback",
    "check",
    "load",
    "preflight",
    "read",
    "watch",
]

_HOMES = {
    "gpudoctor.app.api": ("Report", "check", "load", "read"),
    "gpudoctor.app.in_training": ("NoGoError", "Watching", "callback", "preflight", "watch"),
    "gpudoctor.core.diagnosis": ("Diagnosis", "Evidence", "Finding", "Unjudged"),
    "gpudoctor.core.errors": ("DoctorError", "DocumentError", "RuleError", "UsageError"),
    "gpudoctor.core.fact": ("Absent", "Known", "Unread"),
    "gpudoctor.core.rule": ("Fix", "Step"),
    "gpudoctor.core.snapshot": ("Snapshot",),
}


def __getattr__(name: str) -> object:
    """Load what is asked for on first use, so that ``gpudoctor --version`` costs nothing."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
