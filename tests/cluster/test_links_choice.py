"""The interfaces of this machine, and which of a machine's interfaces NCCL and Gloo take."""

from __future__ import annotations

import socket

import pytest

from gpudoctor.target.network import (
    Address,
    Choice,
    Interface,
    Resolved,
    interface_with_address,
    list_interfaces,
    selected_names,
)
from gpudoctor.target.network import gloo_choice as gloo
from gpudoctor.target.network import nccl_choice as nccl


def interface(name: str, *addresses: str, running: bool = True) -> Interface:
    own = tuple(Address(text, int(prefix)) for text, _, prefix in (one.partition("/") for one in addresses))
    return Interface(name, running, own)


LO = interface("lo", "127.0.0.1/8", "::1/128")
ETH0 = interface("eth0", "10.0.0.5/16", "fd00::5/64", "fe80::5%eth0/64")
ETH1 = interface("eth1", "10.9.0.5/24")
DOCKER = interface("docker0", "172.17.0.1/16")
IB0 = interface("ib0", "192.168.7.5/24")
VIRBR = interface("virbr0", "192.168.122.1/24")
LOCAL6 = interface("eth2", "fe80::7%eth2/64")
MACHINE = (LO, DOCKER, ETH0, ETH1)


def test_this_machine_has_what_the_kernel_lists() -> None:
    found = list_interfaces()
    assert found
    assert {one.name for one in found} == {name for _, name in socket.if_nameindex()}
    loopback = next(one for one in found if one.name == "lo")
    assert loopback.running
    assert loopback.addresses[0] == Address("127.0.0.1", 8)


def test_every_address_can_be_bound() -> None:
    for one in list_interfaces() or ():
        for address in one.addresses if one.running else ():
            family = {4: socket.AF_INET, 6: socket.AF_INET6}[address.version]
            target = socket.getaddrinfo(address.text, 0, family, socket.SOCK_STREAM)[0][4]
            with socket.socket(family, socket.SOCK_STREAM) as link:
                link.bind(target)


@pytest.mark.parametrize(
    ("among", "environ", "taken"),
    [
        (MACHINE, {}, ("eth0", "10.0.0.5", ("eth1",))),
        ((*MACHINE, IB0), {}, ("ib0", "192.168.7.5", ())),
        ((*MACHINE, IB0), {"NCCL_SOCKET_IFNAME": "eth1"}, ("eth1", "10.9.0.5", ())),
        (MACHINE, {"NCCL_SOCKET_IFNAME": "=eth"}, ("", "", ())),
        (MACHINE, {"NCCL_SOCKET_IFNAME": "e"}, ("eth0", "10.0.0.5", ("eth1",))),
        (MACHINE, {"NCCL_SOCKET_FAMILY": "AF_INET6"}, ("eth0", "fd00::5", ())),
        (MACHINE, {"NCCL_COMM_ID": "10.9.0.77:29500"}, ("eth1", "10.9.0.5", ())),
        (MACHINE, {"NCCL_COMM_ID": "[fd00::77]:29500"}, ("eth0", "fd00::5", ())),
        (MACHINE, {"NCCL_COMM_ID": "203.0.113.1:29500"}, ("", "", ())),
        (MACHINE, {"NCCL_COMM_ID": "10.9.0.77:29500", "NCCL_SOCKET_IFNAME": "eth0"}, ("eth1", "10.9.0.5", ())),
        ((LO, DOCKER, VIRBR), {}, ("docker0", "172.17.0.1", ())),
        ((LO, VIRBR), {}, ("lo", "127.0.0.1", ())),
        ((LO, LOCAL6), {}, ("eth2", "fe80::7%eth2", ())),
        ((LO, interface("eth0", "10.0.0.5/16", running=False), ETH1), {}, ("eth1", "10.9.0.5", ())),
        ((LO, interface("eth0", "fd00::5/64"), ETH1), {}, ("eth1", "10.9.0.5", ("eth0",))),
    ],
)
def test_nccl_takes(
    among: tuple[Interface, ...], environ: dict[str, str], taken: tuple[str, str, tuple[str, ...]]
) -> None:
    choice = nccl(among, environ)
    assert (choice.interface, choice.address, choice.also) == taken
    assert choice.because


def test_nccl_before_2_28_takes_what_has_no_carrier_and_libvirts_bridge() -> None:
    dead = interface("eth0", "10.0.0.5/16", running=False)
    assert [nccl((LO, dead, ETH1), {}, release).interface for release in ((2, 27, 7), (2, 28, 3))] == ["eth0", "eth1"]
    assert [nccl((LO, VIRBR), {}, release).interface for release in ((2, 27, 7), (2, 28, 3))] == ["virbr0", "lo"]


@pytest.mark.parametrize(
    ("environ", "own", "taken"),
    [
        ({}, ("10.9.0.5",), ("eth1", "10.9.0.5")),
        ({}, ("127.0.1.1",), ("lo", "127.0.1.1")),
        ({}, ("203.0.113.8",), ("lo", "127.0.0.1")),
        ({}, (), ("lo", "127.0.0.1")),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, ("127.0.1.1",), ("eth1", "10.9.0.5")),
        ({"GLOO_SOCKET_IFNAME": "eth0,eth1"}, (), ("eth0", "10.0.0.5")),
    ],
)
def test_gloo_takes(environ: dict[str, str], own: tuple[str, ...], taken: tuple[str, str]) -> None:
    choice = gloo(MACHINE, environ, lambda: Resolved("node1", own, "" if own else "Name or service not known"))
    assert (choice.interface, choice.address) == taken


NAMES = ["docker0", "eth0", "eth1", "eth10", "ib0", "lo"]


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("=eth0,ib0", ["eth0", "ib0"]),
        ("^docker,lo", ["eth0", "eth1", "eth10", "ib0"]),
        ("^=eth1", ["docker0", "eth0", "eth10", "ib0", "lo"]),
        ("eno1", []),
        ("=,", NAMES),
        ("^", []),
    ],
)
def test_names_are_prefixes_unless_an_equals_sign_says_otherwise(wanted: str, taken: list[str]) -> None:
    assert selected_names(wanted, NAMES) == taken


def test_a_choice_of_nothing_is_false_and_says_why() -> None:
    choice = nccl(MACHINE, {"NCCL_SOCKET_IFNAME": "eno1"})
    assert not choice
    assert choice == Choice("", "", "NCCL_SOCKET_IFNAME=eno1 names no interface that is up with an address")


def test_an_address_leads_back_to_its_interface() -> None:
    assert interface_with_address("10.9.0.5", MACHINE) == ETH1
    assert interface_with_address("10.9.0.6", MACHINE) is None
