"""Diagnoses one machine after the other in one process: what starts Python and imports gpudoctor is paid once.

Run by Windows' Python. Each line of standard input is a JSON object, ``{"words": [...], "environ": {...}}``; each
answer is one line: the exit code, what was printed, and what went to standard error.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys

from gpudoctor.app import cli


def main() -> None:
    """Answer every line of standard input."""
    before = dict(os.environ)
    asking = io.TextIOWrapper(os.fdopen(os.dup(0), "rb"), "utf-8")  # standard input itself is the program's
    for line in asking:
        asked = json.loads(line)
        os.environ.clear()
        os.environ.update({**before, **asked["environ"]})
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(asked["words"])
        sys.__stdout__.write(json.dumps([code, out.getvalue(), err.getvalue()]) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
