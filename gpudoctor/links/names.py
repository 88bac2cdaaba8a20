"""What a host name leads to, within a time that the resolver may not exceed."""

from __future__ import annotations

import ipaddress
import socket
import threading

from gpudoctor.model.frozen import frozen


@frozen
class Resolved:
    """The addresses of a name, in the resolver's order; where there is none, `why`."""

    name: str
    addresses: tuple[str, ...] = ()
    why: str = ""

    @property
    def loopback(self) -> bool:
        """Whether the first address, which is what most programs take, reaches this machine alone."""
        return bool(self.addresses) and ipaddress.ip_address(self.addresses[0]).is_loopback


def resolve(name: str, seconds: float = 3.0) -> Resolved:
    """Ask the resolver of this machine (files, DNS, whatever nsswitch.conf says).

    It knows no time limit: /etc/resolv.conf allows 5 s for each of three servers, twice. So it is asked in a thread
    that is left behind when time is up.
    """
    if literal(name):
        return Resolved(name, (name,))
    answer: list[Resolved] = []
    asking = threading.Thread(target=lambda: answer.append(_ask(name)), name=f"resolve {name}", daemon=True)
    asking.start()
    asking.join(seconds)
    return answer[0] if answer else Resolved(name, why=f"the resolver did not answer within {seconds:g} s")


def literal(name: str) -> bool:
    """Whether it is an address already, with or without a scope: ``fe80::1%eth0``."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _ask(name: str) -> Resolved:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        return Resolved(name, why="it is no host name")
    except OSError as error:
        return Resolved(name, why=error.strerror or str(error))
    return Resolved(name, tuple(dict.fromkeys(str(address[0]) for *_, address in found)))
