"""Become a command that ends when the program that started it does, even if that is killed.

Run as ``python -I -S -c TEXT PARENT COMMAND...``, where PARENT is the process id of that program. Exits with 127 where
there is no such command and with 126 where it cannot be started, as a shell does. Linux; elsewhere it just becomes it.
"""

from __future__ import annotations

import os
import signal
import sys

_PDEATHSIG = 1


def main(parent: int, argv: list[str]) -> int:
    """Replace this process by the command, which the kernel kills when `parent` ends. Returns only if that fails: 126
    or 127 if the command cannot be started, 1 if the parent is gone.
    """
    if sys.platform == "win32":
        return 126  # where a job ends with whoever holds it
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    except (ImportError, OSError, AttributeError):
        pass
    if os.getppid() != parent:  # it went before we were on the leash
        return 1
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)  # a shell's background job inherits SIGINT as ignored
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError:
        os.write(2, os.fsencode("%s: no such program\n" % argv[0]))
        return 127
    except (OSError, ValueError) as error:
        os.write(2, os.fsencode("%s: %s\n" % (argv[0], getattr(error, "strerror", None) or error)))
        return 126


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
