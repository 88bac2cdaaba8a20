"""gpudoctor names the cause when a GPU machine does not work.

The path, one folder or file a step::

    target -> probes -> Snapshot -> rules -> Diagnosis -> views
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudoctor.version import __version__

if TYPE_CHECKING:
    from gpudoctor.doctor import check, read
    from gpudoctor.job.inside import NoGoError, preflight

__all__ = ["NoGoError", "__version__", "check", "preflight", "read"]


def __getattr__(name: str) -> object:
    """Load the doctor on first use, so that ``gpudoctor --version`` costs nothing."""
    if name in {"check", "read"}:
        from gpudoctor import doctor

        return getattr(doctor, name)
    if name in {"preflight", "NoGoError"}:
        from gpudoctor.job import inside

        return getattr(inside, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
