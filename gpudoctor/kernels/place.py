"""Where the child's files lie: beside this one, or unpacked for as long as we live where we run from a zip file."""

from __future__ import annotations

from gpudoctor import shipped


def program() -> str:
    """The child's program, as an interpreter takes it."""
    return str(shipped.folder("kernels/child") / "__main__.py")
