"""ibstat, ibstatus and ibv_devinfo: the ports of the RDMA cards, as rows of ``rdma``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Fact, Known, Rows, text_of, value_of
from gpudoctor.readers._paste import Paste
from gpudoctor.readers._pattern import Pattern, by_phrase

EXACT = 8
FACTS = (
    column("rdma.card_ports", "int", "ports that the listing shows of the same card: one system image GUID"),
    fact("rdma.vanished", "list", "RDMA devices that the kernel lists and ibstat cannot read: mlx5_8"),
)

_DEVICE = Pattern(
    r"\s*(?:CA '(\w{1,40})'|hca_id:\s*(\w{1,40})|Infiniband device '(\w{1,40})' port (\d{1,3}) status:)\s*$"
)
_PORT = Pattern(r"\s*(?:Port (\d{1,3}):|port:\s+(\d{1,3}))\s*$")
_FIELD = Pattern(r"\s*(\w[\w ]{2,24}):\s+(\S.{0,80})$")
_PANIC = Pattern(r"\s*ibpanic: \[\d+\] main: stat of IB device '(\w{1,40})' failed: No such file or directory")
_NUMBER = Pattern(r"\d+(?:\.\d+)?")
_OF_CARD = {
    "CA type": "model",
    "vendor_part_id": "model",
    "Firmware version": "firmware",
    "fw_ver": "firmware",
    "board_id": "board",
    "System image GUID": "card",
    "sys_image_guid": "card",
}
_OF_PORT = by_phrase(
    """
state: State | state
physical_state: Physical state | phys state | phys_state
rate: Rate | rate
link_layer: Link layer | link_layer
"""
)
_STATES = {"ACTIVE": "ACTIVE", "INIT": "INIT", "INITIALIZING": "INIT", "ARMED": "ARMED", "DOWN": "DOWN"}
PHYSICAL = {"LINK_UP": "LinkUp", "POLLING": "Polling", "DISABLED": "Disabled", "SLEEP": "Sleep"}
_Ports = dict[tuple[str, int, str], dict[str, Fact]]


def read(paste: Paste) -> Iterator[tuple[str, Fact | Rows]]:
    """Rows of ``rdma`` per port of ibstat, ibv_devinfo or ibstatus (the latest state), and rdma.vanished devices."""
    if not any(word in paste.lower for word in ("ca '", "hca_id:", "infiniband device '")):
        return
    ports: _Ports = {}
    vanished: list[tuple[str, str]] = []
    device: dict[str, Fact] = {}
    port: dict[str, Fact] = {}
    for index, line in enumerate(paste.bare):
        if head := _DEVICE.match(line):
            _add_port(ports, device, port)
            source = paste.use(index)
            device = {"device": Known(head[1] or head[2] or head[3], source)}
            port = {"port": Known(int(head[4]), source)} if head[4] else {}
        elif device and (number := _PORT.match(line)):
            _add_port(ports, device, port)
            port = {"port": Known(int(number[1] or number[2]), paste.use(index))}
        elif device and port and (panic := _PANIC.match(line)):  # in a whole listing, not of a name that was asked for
            vanished.append((panic[1], paste.use(index)))
        elif device and (field := _FIELD.match(line)):
            if name := _OF_PORT.get(field[1]) if port else _OF_CARD.get(field[1]):
                (port if port else device).update(_columns(name, field[2].strip(), paste.use(index)))
        elif index in paste.commands:
            _add_port(ports, device, port)
            device, port = {}, {}
    _add_port(ports, device, port)
    if ports:
        yield "rdma", _with_card_ports(ports)
    if vanished:
        yield "rdma.vanished", Known(tuple(name for name, _ in vanished), vanished[0][1])


def _add_port(ports: _Ports, device: dict[str, Fact], port: dict[str, Fact]) -> None:
    """Add the port to `ports`, over what an earlier listing of the same machine had of it; nothing without a state."""
    number = value_of(port.get("port"))
    if not isinstance(number, int) or "state" not in port:
        return
    name, card = text_of(device["device"]), text_of(device["card"]) if "card" in device else ""
    same = next((key for key in ports if key[:2] == (name, number) and (not card or key[2] in ("", card))), None)
    row = {**(ports.pop(same) if same else {}), **device, **port}
    ports[name, number, card or (same[2] if same else "")] = row


def _columns(name: str, value: str, source: str) -> dict[str, Fact]:
    """The columns of ``rdma`` for a field, in one spelling; an odd `state` gives none, a rate also `rate_gbps`."""
    if name == "state":
        word = value.rpartition(":")[2].split("(")[0].strip().upper().removeprefix("PORT_")
        return {name: Known(_STATES[word], source)} if word in _STATES else {}
    if name == "physical_state":
        word = value.rpartition(":")[2].split("(")[0].strip()
        return {name: Known(PHYSICAL.get(word, word), source)}
    if name == "rate":
        speed = _NUMBER.match(value)
        rate: dict[str, Fact] = {name: Known(value, source)}
        return {**rate, "rate_gbps": Known(float(speed[0]), source)} if speed else rate
    if name == "model":
        return {name: Known(f"MT{value}" if value.isdecimal() else value, source)}
    if name == "card":
        return {name: Known(value.lower().removeprefix("0x").replace(":", ""), source)}
    return {name: Known(value, source)}


def _with_card_ports(ports: _Ports) -> Rows:
    """The rows of ``rdma``, with card_ports, how many the card has, in place of ``card`` where that is known."""
    of_card = Counter(card for _, _, card in ports if card)
    rows: list[dict[str, Fact]] = []
    for (_, _, card), row in ports.items():
        columns = {name: value for name, value in row.items() if name != "card"}
        if card:
            columns["card_ports"] = Known(of_card[card], getattr(row["card"], "source", ""))
        rows.append(columns)
    return tuple(rows)
