"""Child processes as the system has them that this runs on: what `child` needs, from the module for that system."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from gpudoctor.target.windows.processes import Process, Selector, kill_marked, text_of
else:
    from gpudoctor.target.posix_processes import Process, Selector, kill_marked, text_of

__all__ = ["Process", "Selector", "kill_marked", "text_of"]
