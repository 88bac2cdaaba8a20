"""Ask this machine's resolver for host names, each in a thread of its own, as a program of the session would.

Run as ``python -I -S ask_names.py NAME...``. Each line is ``@gpudoctor`` and a JSON object: ``{"name": name, "is":
[address, ...]}`` in the order in which `getaddrinfo` gives them, or ``"text"`` where the name does not resolve; a name
whose answer does not come says nothing. ``{"done": true}`` is the last line. Standard library only; Python 3.8.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading


def send(**entry: object) -> None:
    """Write the entry at once, as a marked line of JSON to standard output."""
    os.write(1, ("\n@gpudoctor " + json.dumps(entry) + "\n").encode())


def resolve(name: str) -> None:
    """Resolve one host name, and send its addresses, each once, or why it does not resolve."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        send(name=name, text=getattr(error, "strerror", None) or str(error))
        return
    send(name=name, **{"is": list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))})


if __name__ == "__main__":
    send(start=True)
    threads = [threading.Thread(target=resolve, args=(name,), daemon=True) for name in sys.argv[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    send(done=True)
