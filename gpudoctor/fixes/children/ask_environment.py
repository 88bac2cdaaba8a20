"""Say where the packages of this interpreter lie, as one line of JSON behind ``@gpudoctor``.

Run as ``python -I -B -c``, with this text. Standard library only; Python 3.8 and newer. Nothing of the environment
itself is imported, save what its .pth files import by themselves.
"""

from __future__ import annotations

import json
import os
import site
import sys
import sysconfig


def managed() -> str | None:
    """Text of EXTERNALLY-MANAGED (PEP 668), or the error if unreadable; None if there is no such file."""
    try:
        with open(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"), encoding="utf-8") as file:
            return file.read(4096)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return str(error)


def sees_user_site() -> bool:
    """True if this interpreter, when not isolated, imports from the user's site-packages."""
    try:
        with open(os.path.join(sys.prefix, "pyvenv.cfg"), encoding="utf-8") as file:
            settings = dict(line.partition("=")[::2] for line in file.read().lower().replace(" ", "").splitlines())
    except (OSError, ValueError):
        return sys.prefix == sys.base_prefix
    return settings.get("include-system-site-packages") == "true"


def main() -> None:
    """Print ``@gpudoctor`` and a line of JSON with the environment's folders and properties to standard output."""
    paths = sysconfig.get_paths()
    user = sees_user_site()
    venv = sys.prefix != sys.base_prefix
    answer = {
        "prefix": sys.prefix,
        "version": ".".join(map(str, sys.version_info[:3])),
        "venv": venv,
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "purelib": paths["purelib"],
        "platlib": paths["platlib"],
        "scripts": paths["scripts"],
        "user_site": site.getusersitepackages() if user else "",
        "user_scripts": sysconfig.get_path("scripts", os.name + "_user") if user else "",
        "managed": None if venv else managed(),
    }
    os.write(1, ("\n@gpudoctor " + json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main()
