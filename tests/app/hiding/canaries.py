"""What is planted: made-up names, numbers and secrets of every kind, in the words in which machines print them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

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


def _of(kind: str, random: Random, hidden: str, ways: tuple[str, ...], *more: str) -> Canary:
    return Canary(kind, random.choice(ways).format(hidden, *more), (hidden,))


@_kind
def user(random: Random) -> Canary:
    ways = (
        "/home/{0}/train.py",
        "/gpfs/home/{0}/env/bin/python",
        "/Users/{0}/x",
        "C:\\Users\\{0}\\AppData\\Local",
        "C:\\\\Users\\\\{0}\\\\x",
        "/data/{0}/checkpoints",
        "/scratch/{0}/run",
        "/mnt/lustre/projects/{0}/y",
        "/tank/ml/{0}/.local/lib/python3.12",
        "USER={0}",
        "HOME=/export/home/{0}",
        "{0}@login ~",
        "uid=1004({0}) gid=1004({0})",
        "/tmp/torchinductor_{0}/fx",
        "file:///home/{0}/wheels",
        "%2Fhome%2F{0}%2Fx",
        '{{"cwd": "\\/home\\/{0}\\/x"}}',
        '{{"user": "{0}"}}',
        "sudo -u {0} id",
        "/mnt/c/Users/{0}/wsl",
        "~{0}/bin/run",
    )
    return _of("user", random, name(random), ways)


@_kind
def host(random: Random) -> Canary:
    ways = (
        "{0}:1042:1100 [3] NCCL INFO Bootstrap : Using eth0",
        "Nov 22 10:11:12 {0} kernel: NVRM: loading",
        "2026-11-22T10:11:12.123456+01:00 {0} nvidia-persistenced[71]: started",
        "root@{0}:~# nvidia-smi",
        "MASTER_ADDR={0}",
        "https://{0}.{1}.org:8443/x",
        "{0}.{1}.internal refused",
        "srun: error: {0}: task 3: Exited with exit code 1",
        "HOSTNAME={0}",
        "Could not resolve host: {0}",
        "Linux {0} 6.8.0-79-generic #79-Ubuntu SMP x86_64 GNU/Linux",
        "27000@{0}",
        "registry.{0}.net/team/image:3",
        "kubernetes.io/hostname={0}",
        "ssh: connect to host {0} port 22: No route to host",
        "{0}.{1}.edu:29500",
        "SLURM_JOB_NODELIST={0}[01-08,12]",
        "tcp://{0}:29500",
    )
    found = name(random) + str(random.randint(1, 99))
    return _of("host", random, found, ways, name(random))


@_kind
def uuid(random: Random) -> Canary:
    digits = _some(random, _HEX, 32)
    whole = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    ways = (
        "GPU-{0}",
        "MIG-{0}",
        "MIG-GPU-{0}/7/0",
        "UUID: {0}",
        "/var/lib/kubelet/pods/{0}/volumes",
        "{1}",
        "pod{2}.slice",
    )
    text = random.choice(ways).format(whole, whole.upper(), whole.replace("-", "_"))
    return Canary("uuid", text, (digits[:8], digits[-8:]))


@_kind
def identifier(random: Random) -> Canary:
    digits = _some(random, _HEX, 62) + "a1"
    ways = ("docker-{0}.scope", "/docker/{0}", "container id {0}", "machine-id: {1}")
    return Canary("id", random.choice(ways).format(digits, digits[:32]), (digits[:12],))


@_kind
def serial(random: Random) -> Canary:
    ways = ("Serial Number : {0}", "SerialNumber: {0}", "serial={0}", "Board serial number: {0}")
    return _of("serial", random, "1" + _some(random, "23456789", 12), ways)


@_kind
def guid(random: Random) -> Canary:
    digits = "b8" + _some(random, "123456789abcdef", 14)
    groups = ":".join(digits[at : at + 4] for at in range(0, 16, 4))
    ways = ("node_guid {1}", "Port GUID: 0x{0}", "fe80:0000:0000:0000:{1}", "sys_image_guid: {1}")
    return Canary("guid", random.choice(ways).format(digits, groups), (digits[-8:], groups[-9:]))


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
    ways = (
        "Connect to {0}<43210> failed",
        "inet {0}/24 brd",
        "MASTER_ADDR={0}",
        "tcp://{0}:29500",
        "eth0:{0}<0>",
        "http://{0}/x",
        "no route to {0}",
        "[{0}]:29500",
        "from {0} port 22",
    )
    return _of("address", random, found, ways)


@_kind
def address6(random: Random) -> Canary:
    start = random.choice(("2a01:4f8", "fd12:3456", "2600:1f18"))
    found = f"{start}:{_some(random, '123456789', 3)}:{_some(random, '12345', 2)}::{_some(random, '123456789abc', 4)}"
    ways = ("[{0}]:29500", "inet6 {0}/64 scope", "eth0:{0}<0>", "connect to {0} failed")
    return _of("address", random, found, ways)


@_kind
def token(random: Random) -> Canary:
    body = _mixed(random, 36)
    heads = ("hf_", "ghp_", "github_pat_", "sk-proj-", "glpat-", "xoxb-", "npm_", "nvapi-", "pypi-", "gsk_")
    ways = (
        "token {0}",
        "{0}",
        "--token={0}",
        "Authorization: Bearer {0}",
        "https://{0}@github.com/x",
        '"{0}"',
        "x={0};",
    )
    return Canary("token", random.choice(ways).format(random.choice(heads) + body), (body[:10],), body)


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
    ways = (
        "WANDB_API_KEY={0}",
        "MY_SECRET={0}",
        "DB_PASSWORD='{0}'",
        "password: {0}",
        '{{"api_key": "{0}"}}',
        "AWS_SECRET_ACCESS_KEY={0}",
        "--password {0}",
        "export HF_TOKEN={0}",
        "Authorization: Basic {0}",
        "machine x login y password {0}",
        "https://cdn.x.org/f?X-Amz-Signature={0}&y=1",
        "postgres://u:{0}@db/x",
        '{{\\"password\\": \\"{0}\\"}}',
    )
    return Canary("token", random.choice(ways).format(body), (body[:10],), body)


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
    ways = ("arn:aws:iam::{0}:role/x", "account id {0}", "{0}.dkr.ecr.us-east-1.amazonaws.com/x:1", "instance i-{1} up")
    return Canary("cloud", random.choice(ways).format(digits, instance), (digits, instance[:8]))


@_kind
def project(random: Random) -> Canary:
    return _of("cloud", random, f"{name(random)}-prod", ("projects/{0}/zones/us-central1-a", "resourceGroups/{0}/x"))


def some(random: Random, many: int) -> list[Canary]:
    """So many, each kind about as often."""
    return [random.choice(KINDS)(random) for _ in range(many)]
