"""What is planted: made-up names, numbers and secrets of every kind, in the words in which machines print them."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from gpudoctor.core.document import parse_toml

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_HEX = "0123456789abcdef"
_ALNUM = _LETTERS + _LETTERS.upper() + "0123456789"


@dataclass(frozen=True)
class Canary:
    """A text to plant, and what of it must not be seen: each of `parts`, and any six characters of a token."""

    kind: str
    text: str
    parts: tuple[str, ...]
    token: str = ""


WAYS: Mapping[str, Sequence[str]] = parse_toml(Path(__file__).with_suffix(".toml").read_text("utf-8"))
KINDS: list[Callable[[Random], Canary]] = []


def _kind(make: Callable[[Random], Canary]) -> Callable[[Random], Canary]:
    KINDS.append(make)
    return make


def _some(random: Random, signs: str, many: int) -> str:
    return "".join(random.choices(signs, k=many))


def name(random: Random) -> str:
    """A user's or host's name that is no word: ``qzkavu``."""
    return "q" + "".join(random.choice("zxkvjw") + random.choice("aeiou") for _ in range(random.randint(2, 4)))


def _mixed(random: Random, many: int) -> str:
    """A key's digits: capitals, small letters and figures, each at least three times."""
    signs = "".join(_some(random, kind, 3) for kind in (_LETTERS, _LETTERS.upper(), "0123456789"))
    return "".join(random.sample(signs + _some(random, _ALNUM, many - len(signs)), many))


def _of(kind: str, random: Random, hidden: str, ways: Sequence[str], *more: str) -> Canary:
    return Canary(kind, random.choice(ways).format(hidden, *more), (hidden,))


@_kind
def user(random: Random) -> Canary:
    return _of("user", random, name(random), WAYS["user"])


@_kind
def host(random: Random) -> Canary:
    found = name(random) + str(random.randint(1, 99))
    return _of("host", random, found, WAYS["host"], name(random))


@_kind
def uuid(random: Random) -> Canary:
    digits = _some(random, _HEX, 32)
    whole = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    text = random.choice(WAYS["uuid"]).format(whole, whole.upper(), whole.replace("-", "_"))
    return Canary("uuid", text, (digits[:8], digits[-8:]))


@_kind
def identifier(random: Random) -> Canary:
    digits = _some(random, _HEX, 62) + "a1"
    return Canary("id", random.choice(WAYS["identifier"]).format(digits, digits[:32]), (digits[:12],))


@_kind
def serial(random: Random) -> Canary:
    return _of("serial", random, "1" + _some(random, "23456789", 12), WAYS["serial"])


@_kind
def guid(random: Random) -> Canary:
    digits = "b8" + _some(random, "123456789abcdef", 14)
    groups = ":".join(digits[at : at + 4] for at in range(0, 16, 4))
    return Canary("guid", random.choice(WAYS["guid"]).format(digits, groups), (digits[-8:], groups[-9:]))


@_kind
def mac(random: Random) -> Canary:
    pairs = [f"b{_some(random, _HEX, 1)}", *(_some(random, "123456789abcdef", 2) for _ in range(5))]
    return Canary(
        "mac", f"link/ether {random.choice(':-').join(pairs)} brd", (":".join(pairs[2:]), "-".join(pairs[2:]))
    )


@_kind
def address(random: Random) -> Canary:
    first = random.choice(("10.{}", "172.20", "192.168", "52.{}", "141.{}")).format(random.randint(40, 250))
    found = f"{first}.{random.randint(1, 250)}.{random.randint(1, 250)}"
    return _of("address", random, found, WAYS["address"])


@_kind
def address6(random: Random) -> Canary:
    start = random.choice(("2a01:4f8", "fd12:3456", "2600:1f18"))
    found = f"{start}:{_some(random, '123456789', 3)}:{_some(random, '12345', 2)}::{_some(random, '123456789abc', 4)}"
    return _of("address", random, found, WAYS["address6"])


@_kind
def token(random: Random) -> Canary:
    body = _mixed(random, 36)
    heads = ("hf_", "ghp_", "github_pat_", "sk-proj-", "glpat-", "xoxb-", "npm_", "nvapi-", "pypi-", "gsk_")
    return Canary("token", random.choice(WAYS["token"]).format(random.choice(heads) + body), (body[:10],), body)


@_kind
def key(random: Random) -> Canary:
    body = _some(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)
    return Canary("token", f"aws {random.choice(('AKIA', 'ASIA'))}{body}", (body,), body)


@_kind
def jwt(random: Random) -> Canary:
    body = _mixed(random, 60)
    return Canary("token", f"eyJ{body[:24]}.eyJ{body[24:48]}.{body[48:]}", (body[:20],), body[:24])


@_kind
def named(random: Random) -> Canary:
    body = random.choice((_mixed(random, 40), _some(random, _HEX, 40), f"{name(random)}-{name(random)}"))
    return Canary("token", random.choice(WAYS["named"]).format(body), (body[:10],), body)


@_kind
def pem(random: Random) -> Canary:
    body = base64.b64encode(random.randbytes(96)).decode()
    text = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body[:64]}\n{body[64:]}\n-----END OPENSSH PRIVATE KEY-----"
    return Canary("token", text, (body[:20],), body[:60].replace("/", "").replace("+", "")[:6])


@_kind
def mail(random: Random) -> Canary:
    who, where = name(random), name(random)
    return Canary("mail", f"ask {who}.{name(random)}@{where}.com", (who, where))


@_kind
def cloud(random: Random) -> Canary:
    digits = _some(random, "123456789", 12)
    instance = _some(random, "123456789abcdef", 17)
    return Canary("cloud", random.choice(WAYS["cloud"]).format(digits, instance), (digits, instance[:8]))


@_kind
def project(random: Random) -> Canary:
    return _of("cloud", random, f"{name(random)}-prod", ("projects/{0}/zones/us-central1-a", "resourceGroups/{0}/x"))


def some(random: Random, many: int) -> list[Canary]:
    """So many, each kind about as often."""
    return [random.choice(KINDS)(random) for _ in range(many)]
