"""Runs one command of gpudoctor after the other in one process: to start Python and import gpudoctor is paid once.

Run by Windows' Python. Each line of standard input is a JSON object, ``{"words": [...], "environ": {...}, "stdin":
"..."}``; each answer is one line: the exit code, what was printed, and what went to standard error.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys

from gpudoctor.app import cli
from gpudoctor.core import language


def main() -> None:
    """Answer every line of standard input."""
    before = dict(os.environ)
    asking = io.TextIOWrapper(os.fdopen(os.dup(0), "rb"), "utf-8")  # standard input itself is the program's
    for line in asking:
        asked = json.loads(line)
        os.environ.clear()
        os.environ.update({**before, **asked["environ"]})
        sys.stdin = io.TextIOWrapper(io.BytesIO(asked["stdin"].encode()), "utf-8")
        out, err, language_before = io.StringIO(), io.StringIO(), language.current()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = cli.run(asked["words"])
            except SystemExit as ended:
                code = int(ended.code or 0)
        language._current = language_before
        sys.__stdout__.write(json.dumps([code, out.getvalue(), err.getvalue()]) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
