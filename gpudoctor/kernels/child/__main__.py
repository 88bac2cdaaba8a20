"""Run kernels of one rung on one device: ``python __main__.py '{"family": "eager", "device": "cuda:0", ...}'``.

The folder is known to the child as the package ``gpudoctor_kernels``, whatever is installed there; a process that
multiprocessing starts anew finds it by the same lines.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types

PACKAGE = "gpudoctor_kernels"
HERE = os.path.dirname(os.path.abspath(__file__))


def register_package() -> None:
    """Make this folder importable as `gpudoctor_kernels` alone, not by `sys.path`, so that no file in it shadows an
    installed module; from here on no bytecode files are written.
    """
    sys.dont_write_bytecode = True  # the patient's folders stay as they are
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != HERE]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [HERE]
    sys.modules.setdefault(PACKAGE, package)


if __name__ in ("__main__", "__mp_main__"):
    register_package()
if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    importlib.import_module(PACKAGE + "." + asked.get("entry", "_main")).main(asked)
