"""The program's entry: answers ``--version`` at once, hands everything else to `app.cli`."""

import gc
import io
import sys

from gpudoctor.core.about import __version__

_GARBAGE = 200_000
"""Objects made before a search for cycles: a short run makes few, and looking for them costs it a tenth."""


def main() -> int:
    """Run the command line in `sys.argv` and return its exit code; prints the version for ``--version`` alone."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(newline="\n")  # on Windows, too, as all that is printed
        print(f"gpudoctor {__version__}")
        return 0
    gc.set_threshold(_GARBAGE, 20, 20)
    try:
        from gpudoctor.app.cli import run_and_finish

        return run_and_finish(sys.argv[1:])
    except KeyboardInterrupt:  # so early that nothing was begun; 128 + SIGINT
        return 130


if __name__ == "__main__":
    safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    if __spec__ and __spec__.name == "gpudoctor.__main__" and not safe:
        del sys.path[0]  # the working directory, with -m: nothing is imported from there
    sys.exit(main())
