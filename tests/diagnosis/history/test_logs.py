"""The logs of every package manager, as the real ones write them, and as a damaged or hostile machine has them."""

import gzip
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.core.fact import Absent, Known, Rows, Unread
from gpudoctor.probes import package_changes
from gpudoctor.target.local import Local
from tests.probes.trees import Tree

OLD, NEW = "580.82.07-0ubuntu1", "580.95.05-0ubuntu1"


def rows(tree: Tree, python: str = "", **environ: str) -> Rows:
    """What the probe says of the machine."""
    target = Local("quick", python or None, str(tree.root), environ)
    ((name, said),) = list(package_changes.probe(target))
    assert name == "package_change"
    return said  # type: ignore[return-value]


def values(said: Rows) -> list[dict[str, Any]]:
    """The known columns of each row, without its age."""
    assert isinstance(said, tuple), said
    return [
        {name: state.value for name, state in row.items() if isinstance(state, Known) and name != "age_s"}
        for row in said
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return (
        Tree(tmp_path / "root")
        .folder("/etc")
        .file("/proc/stat", "btime 1762000000\n")
        .file("/proc/uptime", "864000.00 1\n")
    )


def test_apt_names_the_command_and_who_asked(tree: Tree) -> None:
    tree.file(
        "/var/log/apt/history.log",
        "\nStart-Date: 2025-11-03  06:25:13\nCommandline: /usr/bin/unattended-upgrade\n"
        f"Upgrade: libnvidia-compute-580:amd64 ({OLD}, {NEW}), curl:amd64 (8.5.0-1, 8.5.0-2)\n"
        f"Install: linux-image-6.8.0-80-generic:amd64 (6.8.0-80.80, automatic)\nEnd-Date: 2025-11-03  06:26:00\n"
        "\nStart-Date: 2025-11-04  08:00:00\nCommandline: apt remove nvidia-container-toolkit\n"
        "Requested-By: maria (1000)\n"
        "Remove: nvidia-container-toolkit:amd64 (1.17.8-1)\nEnd-Date: 2025-11-04  08:00:09\n",
    )
    removed, *upgraded = values(rows(tree))
    assert removed == {
        "name": "nvidia-container-toolkit",
        "before": "1.17.8-1",
        "time": "2025-11-04T08:00:00+00:00",
        "by": "apt remove nvidia-container-toolkit",
        "user": "maria",
    }
    assert [(one["name"], one.get("before"), one["after"], one["by"]) for one in upgraded] == [
        ("libnvidia-compute-580", OLD, NEW, "unattended-upgrades"),
        ("linux-image-6.8.0-80-generic", None, "6.8.0-80.80", "unattended-upgrades"),
    ]


def test_one_change_in_two_logs_is_one_change_and_the_log_that_says_by_whom_counts(tree: Tree) -> None:
    tree.file("/var/log/dpkg.log", f"2025-11-03 06:59:58 upgrade libnvidia-compute-580:amd64 {OLD} {NEW}\n")
    (alone,) = values(rows(tree))
    assert "by" not in alone
    tree.file(
        "/var/log/apt/history.log",
        "\nStart-Date: 2025-11-03  07:00:03\nCommandline: apt upgrade\n"
        f"Upgrade: libnvidia-compute-580:amd64 ({OLD}, {NEW})\n",
    )
    (both,) = values(rows(tree))
    assert both["by"] == "apt upgrade"


def test_the_age_is_by_the_machines_own_clock_and_its_own_zone(tree: Tree) -> None:
    zone = Path("/usr/share/zoneinfo/Asia/Tokyo")
    if not zone.is_file():
        pytest.skip("needs the time zone Asia/Tokyo (tzdata)")
    tree.file("/etc/localtime", zone.read_bytes())
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1762864000 - 3600 + 9 * 3600))
    tree.file("/var/log/dpkg.log", f"{stamp} install nvidia-driver-580:amd64 <none> {NEW}\n")
    said = rows(tree)
    assert isinstance(said, tuple)
    assert said[0]["age_s"] == Known(3600, "/var/log/dpkg.log")
    assert str(values(said)[0]["time"]).endswith("+09:00")


def test_rotated_logs_are_read_behind_the_newest(tree: Tree) -> None:
    old = f"2025-10-03 06:25:14 upgrade libnvidia-compute-580:amd64 1.0 {OLD}\n"
    tree.file("/var/log/dpkg.log", f"2025-11-03 06:25:14 upgrade libnvidia-compute-580:amd64 {OLD} {NEW}\n")
    tree.file("/var/log/dpkg.log.2.gz", gzip.compress(old.encode()))
    tree.file("/var/log/dpkg.log.1", "2025-10-20 06:25:14 install dkms:all <none> 3.0.11\n")
    assert [one["time"][:10] for one in values(rows(tree))] == ["2025-11-03", "2025-10-20", "2025-10-03"]


def test_pacman(tree: Tree) -> None:
    tree.file(
        "/var/log/pacman.log",
        "[2025-11-03T06:25:13+0100] [PACMAN] Running 'pacman -Syu'\n"
        "[2025-11-03T06:26:13+0100] [ALPM] upgraded nvidia-open (580.82.09-3 -> 580.95.05-1)\n"
        "[2025-11-03T06:26:14+0100] [ALPM] upgraded linux (6.17.1.arch1-1 -> 6.17.6.arch1-1)\n"
        "[2025-11-03T06:26:15+0100] [ALPM] removed cuda (13.0.1-1)\n"
        "[2025-11-03T06:26:15+0100] [ALPM] upgraded firefox (143.0-1 -> 144.0-1)\n",
    )
    said = {one["name"]: one for one in values(rows(tree))}
    assert set(said) == {"nvidia-open", "linux", "cuda"}
    assert (said["nvidia-open"]["before"], said["nvidia-open"]["by"]) == ("580.82.09-3", "pacman -Syu")
    assert said["nvidia-open"]["time"] == "2025-11-03T06:26:13+01:00"
    assert "after" not in said["cuda"]


def test_zypper_knows_what_was_before_by_an_earlier_line(tree: Tree) -> None:
    tree.file(
        "/var/log/zypp/history",
        "# 2025-10-01\n"
        "2025-10-01 06:25:13|command|root@node|'zypper' 'install' 'nvidia-open-driver-G06'|\n"
        "2025-10-01 06:25:14|install|nvidia-open-driver-G06|580.82.07-1.1|x86_64|root@node|NVIDIA|abc|\n"
        "2025-11-03 06:25:13|command|root@node|'zypper' 'up'|\n"
        "2025-11-03 06:25:14|install|nvidia-open-driver-G06|580.95.05-1.1|x86_64|root@node|NVIDIA|abc|\n"
        "2025-11-03 06:25:15|remove |kernel-default|6.4.0-1|x86_64|root@node|\n",
    )
    kernel, new, old = values(rows(tree))
    assert (new["before"], new["after"]) == ("580.82.07-1.1", "580.95.05-1.1")
    assert "before" not in old
    assert (kernel["name"], kernel["before"], kernel.get("after")) == ("kernel-default", "6.4.0-1", None)


def test_conda_of_the_targets_environment(tree: Tree, tmp_path: Path) -> None:
    prefix = "/opt/conda"
    tree.file(f"{prefix}/bin/python3.12", "").file(f"{prefix}/conda-meta/python-3.12.3-h1_0.json", "{}")
    tree.folder(f"{prefix}/lib/python3.12/site-packages")
    (tree.root / "opt/conda/bin/python").symlink_to("python3.12")
    tree.file(
        f"{prefix}/conda-meta/history",
        "==> 2025-11-03 06:25:13 <==\n# cmd: /opt/conda/bin/conda install pytorch=2.5.1\n# conda version: 24.1.2\n"
        "-pytorch/linux-64::pytorch-2.4.0-py3.12_cuda12.1_cudnn9.1.0_0\n"
        "+pytorch/linux-64::pytorch-2.5.1-py3.12_cuda12.4_cudnn9.1.0_0\n"
        "+defaults/linux-64::zlib-1.3.1-h5eee18b_0\n# update specs: ['pytorch=2.5.1']\n",
    )
    target = Local("quick", None, str(tree.root), {"CONDA_PREFIX": prefix})
    target.__dict__["python"] = f"{prefix}/bin/python"
    ((_, said),) = package_changes.probe(target)
    (one,) = values(said)  # type: ignore[arg-type]
    assert (one["name"], one["before"], one["after"]) == ("pytorch", "2.4.0", "2.5.1")
    assert one["by"] == "conda install pytorch=2.5.1"


DNF4 = """
create table trans (id integer primary key, dt_begin integer, dt_end integer, rpmdb_version_begin text,
  rpmdb_version_end text, releasever text, user_id integer, cmdline text, state integer);
create table trans_item (id integer primary key, trans_id integer, item_id integer, repo_id integer,
  action integer, reason integer, state integer);
create table rpm (item_id integer, name text, epoch integer, version text, release text, arch text);
insert into trans values (1, 1762151113, 0, '', '', '9', 4294967295, '/usr/bin/dnf-automatic --timer', 1);
insert into trans_item values (1, 1, 1, 1, 6, 0, 1), (2, 1, 2, 1, 7, 0, 1), (3, 1, 3, 1, 1, 0, 1);
insert into rpm values (1, 'kmod-nvidia-open-dkms', 3, '580.95.05', '1.el9', 'x86_64'),
  (2, 'kmod-nvidia-open-dkms', 3, '580.82.07', '1.el9', 'x86_64'), (3, 'vim', 2, '9.1', '1', 'x86_64');
"""
DNF5 = """
create table trans (id integer primary key, dt_begin integer, dt_end integer, releasever text, user_id integer,
  description text, comment text, state_id integer);
create table trans_item (id integer primary key, trans_id integer, item_id integer, repo_id integer,
  action_id integer, reason_id integer, state_id integer);
create table pkg_name (id integer primary key, name text);
create table rpm (item_id integer, name_id integer, epoch integer, version text, release text, arch_id integer);
insert into trans values (1, 1762151113, 0, '43', 1000, 'dnf upgrade --refresh', '', 2);
insert into trans_item values (1, 1, 1, 1, 2, 0, 1), (2, 1, 2, 1, 6, 0, 1);
insert into pkg_name values (1, 'akmod-nvidia');
insert into rpm values (1, 1, 3, '580.95.05', '1.fc43', 1), (2, 1, 3, '580.82.07', '1.fc43', 1);
"""


@pytest.mark.parametrize(
    ("path", "tables", "name", "by", "user"),
    [
        ("/var/lib/dnf/history.sqlite", DNF4, "kmod-nvidia-open-dkms", "dnf-automatic", None),
        (
            "/usr/lib/sysimage/libdnf5/transaction_history.sqlite",
            DNF5,
            "akmod-nvidia",
            "dnf upgrade --refresh",
            "user 1000",
        ),
    ],
)
def test_dnf_by_its_own_history(tree: Tree, path: str, tables: str, name: str, by: str, user: str | None) -> None:
    tree.file(path, "")
    base = sqlite3.connect(tree.root / path[1:])
    base.executescript(tables)
    base.close()
    (one,) = values(rows(tree, sys.executable))[:1]
    assert (one["name"], one["before"][:9], one["after"][:9]) == (name, "580.82.07", "580.95.05")
    assert (one["by"], one.get("user")) == (by, user)


def test_a_damaged_database_of_dnf_is_unread(tree: Tree) -> None:
    tree.file("/var/lib/dnf/history.sqlite", b"SQLite format 3\0" + b"\xff" * 5000)
    bare = tree.root / "python"  # an environment without packages
    bare.write_text(f'#!/bin/sh\ncase "$*" in *ask_dnf*) exec {sys.executable} "$@";; esac\nexit 1\n')
    bare.chmod(0o755)
    assert rows(tree, str(bare)) == Unread("/var/lib/dnf/history.sqlite: the child that reads it: exit 1")


def test_a_log_that_is_refused_is_unread_and_no_log_is_absent(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(rows(tree), Absent)
    tree.file("/var/log/dpkg.log", "2025-11-03 06:25:14 install dkms:all <none> 3.0\n")

    def refuse(self: Path, *rest: Any, **more: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert rows(tree) == Unread("/var/log/dpkg.log: Permission denied")


LINE = f"2025-11-03 06:25:14 upgrade libnvidia-compute-580:amd64 {OLD} {NEW}\n"
HOSTILE = {
    "binary": os.urandom(100_000) + b"\n" + LINE.encode(),
    "no line ends": b"a" * 300_000 + b"\n" + LINE.encode(),
    "words without end": b"2025-11-03 06:25:14 upgrade " + b"nvidia" * 50_000 + b"\n" + LINE.encode(),
    "no such date": b"2025-13-45 99:99:99 upgrade nvidia-a 1 2\n" + LINE.encode(),
    "empty versions": b"2025-11-03 06:25:14 upgrade nvidia-b  \n" + LINE.encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_log_has_hides_nothing_else(tree: Tree, name: str) -> None:
    tree.file("/var/log/dpkg.log", HOSTILE[name]).file("/var/log/apt/history.log", HOSTILE[name])
    assert [one["name"] for one in values(rows(tree))] == ["libnvidia-compute-580"]


def test_of_a_huge_log_only_the_end_is_read_and_a_bomb_is_cut(tree: Tree) -> None:
    tree.file("/var/log/dpkg.log", "")
    place = tree.root / "var/log/dpkg.log"
    with place.open("r+b") as file:
        file.truncate(500 << 20)
        file.seek(500 << 20)
        file.write(b"\n" + LINE.encode())
    assert [one["after"] for one in values(rows(tree))] == [NEW]
    tree.file("/var/log/dpkg.log", LINE).file("/var/log/dpkg.log.1.gz", gzip.compress(b"\0" * (200 << 20), 1))
    assert [one["after"] for one in values(rows(tree))] == [NEW]


def test_control_characters_are_spelt_out_and_secrets_are_hidden(tree: Tree) -> None:
    tree.file(
        "/var/log/apt/history.log",
        "\nStart-Date: 2025-11-03  06:25:13\n"
        "Commandline: apt install -o Acquire::http::Proxy=http://maria:hunter22@proxy nvidia-x\x1b[2J\n"
        "Upgrade: nvidia-\x1b[31mred:amd64 (1\x07, 2)\n",
    )
    (one,) = values(rows(tree))
    assert one["name"] == r"nvidia-\x1b[31mred"
    assert one["before"] == r"1\x07"
    assert "hunter22" not in str(one)
    assert "\x1b" not in str(one)


def test_of_a_flood_the_newest_are_kept(tree: Tree) -> None:
    names = [f"nvidia-p{number}" for number in range(5000)]
    text = "".join(
        f"2025-11-03 06:{at // 60 % 60:02}:{at % 60:02} install {name}:amd64 <none> 1\n"
        for at, name in enumerate(names)
    )
    tree.file("/var/log/dpkg.log", text)
    said = values(rows(tree))
    assert len(said) == 200
    assert said[0]["time"] >= said[-1]["time"]


def test_what_pip_installed_is_dated_by_its_record(tree: Tree, tmp_path: Path) -> None:
    tree.file("/v/pyvenv.cfg", "home = /usr/bin\nversion = 3.12.3\n").file("/usr/bin/python3.12", "").folder("/v/bin")
    (tree.root / "v/bin/python").symlink_to("/usr/bin/python3.12")
    info = "/v/lib/python3.12/site-packages/torch-2.9.0+cu128.dist-info"
    tree.file(f"{info}/RECORD", "").file(f"{info}/INSTALLER", "pip\n")
    os.utime(tree.root / f"{info}/RECORD"[1:], (1762864000 - 7200,) * 2)
    target = Local("quick", None, str(tree.root), {})
    target.__dict__["python"] = "/v/bin/python"
    ((_, said),) = package_changes.probe(target)
    (one,) = values(said)  # type: ignore[arg-type]
    assert (one["name"], one["after"], one["by"]) == ("torch", "2.9.0+cu128", "pip")
    assert said[0]["age_s"] == Known(7200, f"{info}/RECORD")  # type: ignore[index]
