"""Interpreters and their packages, as pip, conda and Debian leave them on disk."""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import python_env
from gpudoctor.probes._site import Site, once_per_target, site_of
from gpudoctor.target.local import Local
from tests.environments import Machine, Venv, column, rows, value
from tests.processes import finished

CUDNN = {"nvidia/cudnn/lib/libcudnn.so.9": b"x" * 100, "nvidia/cudnn/__init__.py": b""}


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv(tmp_path)


def test_a_virtual_environment_is_read_from_its_own_files(venv: Venv) -> None:
    facts = venv.asked(python_env)  # its bin/python is an empty file: nothing could have been asked of it
    assert value(facts, "python.path") == "/venv/bin/python"
    assert value(facts, "python.version") == "3.12.3"
    assert value(facts, "python.environment") == "venv"
    assert value(facts, "python.prefix") == "/venv"
    assert value(facts, "python.site_folders") == ("/venv/lib/python3.12/site-packages",)
    assert value(facts, "python.externally_managed") is False
    assert isinstance(facts["python.user_site"], Absent)


def test_uv_writes_its_settings_differently(tmp_path: Path) -> None:
    venv = Venv(tmp_path)
    venv.write("/venv/pyvenv.cfg", "home = /usr/bin\nimplementation = CPython\nuv = 0.5.1\nversion_info = 3.12.3\n")
    facts = venv.asked(python_env)
    assert (value(facts, "python.version"), value(facts, "python.implementation")) == ("3.12.3", "cpython")
    assert value(facts, "python.installer") == "uv"


def test_who_puts_packages_into_an_environment(venv: Venv, tmp_path: Path) -> None:
    assert isinstance(venv.asked(python_env)["python.installer"], Unread)
    venv.dist("pip", "25.3")
    assert value(venv.asked(python_env), "python.installer") == "pip"
    venv.dist("torch", "2.9.1", installer="uv")
    assert value(venv.asked(python_env), "python.installer") == "uv"
    env = conda(tmp_path / "conda")
    assert value(env.asked(python_env), "python.installer") == "conda"
    env.dist("torch", "2.4.0", installer="pip")
    assert value(env.asked(python_env), "python.installer") == "pip"


def test_pythonpath_comes_first_and_pth_lines_come_last(venv: Venv) -> None:
    venv.at("/opt/src/x")
    venv.at("/opt/first/x")
    venv.write(f"{venv.site}/__editable__.pth", "# mine\nimport sys; sys.exit(1)\n/opt/src\n/opt/gone\n")
    facts = venv.asked(python_env, PYTHONPATH="/opt/first:relative")
    assert value(facts, "python.site_folders") == ("/opt/first", venv.site, "/opt/src")


def test_packages_have_normal_names_and_their_installer(venv: Venv) -> None:
    venv.dist("nvidia_cudnn_cu12", "9.1.0.70", files=CUDNN, installer="uv")
    venv.dist("torch", "2.5.1+cu124")
    venv.dist("Jinja2", "3.1.6")
    facts = venv.asked(python_env)
    assert column(facts, "package", "name") == ["jinja2", "nvidia-cudnn-cu12", "torch"]
    assert column(facts, "package", "version") == ["3.1.6", "9.1.0.70", "2.5.1+cu124"]
    assert column(facts, "package", "installer") == [None, "uv", "pip"]


def test_a_sound_environment_has_nothing_to_report(venv: Venv) -> None:
    venv.dist("nvidia-cudnn-cu12", "9.1.0.70", files=CUDNN)
    venv.dist("nvidia-nccl-cu12", "2.21.5", files={"nvidia/nccl/lib/libnccl.so.2": b"n"})
    facts = venv.asked(python_env)
    for name in ("duplicates", "leftovers", "damaged", "damaged_files", "overwritten"):
        assert value(facts, f"python.{name}") == ()


def test_two_dist_infos_are_duplicates_in_one_folder_and_hidden_further_down_the_path(venv: Venv) -> None:
    venv.dist("torch", "2.1.0")
    venv.dist("torch", "2.4.0")
    venv.dist("numpy", "1.26.0")
    venv.dist("numpy", "2.0.0", site="/opt/more")
    facts = venv.asked(python_env, PYTHONPATH="/opt/more")
    assert value(facts, "python.duplicates") == (f"torch 2.1.0 and 2.4.0 in {venv.site}",)


def test_what_an_interrupted_pip_left_is_listed(venv: Venv) -> None:
    venv.at(f"{venv.site}/~orch-2.1.0.dist-info/METADATA").write_text("Name: torch\n")
    facts = venv.asked(python_env)
    assert value(facts, "python.leftovers") == (f"{venv.site}/~orch-2.1.0.dist-info",)
    assert rows(facts, "package") == ()


def test_a_changed_python_file_is_no_damage_and_a_truncated_or_deleted_library_is(venv: Venv) -> None:
    venv.dist("nvidia-cudnn-cu12", "9.1.0.70", files=CUDNN)
    library = f"{venv.site}/nvidia/cudnn/lib/libcudnn.so.9"
    venv.write(f"{venv.site}/nvidia/cudnn/__init__.py", "# edited")
    assert value(venv.asked(python_env), "python.damaged") == ()
    venv.write(library, b"x" * 60)
    facts = venv.asked(python_env)
    assert value(facts, "python.damaged") == ("nvidia-cudnn-cu12",)
    assert value(facts, "python.damaged_files") == (f"{library} has 60 bytes, nvidia-cudnn-cu12 recorded 100",)
    venv.at(library).unlink()
    assert value(venv.asked(python_env), "python.damaged") == ("nvidia-cudnn-cu12",)


def test_damage_is_told_by_records_and_without_one_it_is_unread(venv: Venv) -> None:
    venv.dist("nvidia-cudnn-cu11", "9.1.0.70", files=CUDNN)
    venv.dist("nvidia-cudnn-cu12", "9.1.0.70", files={"nvidia/cudnn/lib/libcudnn.so.9": b"x" * 120})
    facts = venv.asked(python_env)
    assert value(facts, "python.overwritten") == ("nvidia-cudnn-cu11 and nvidia-cudnn-cu12",)
    assert value(facts, "python.damaged") == ("nvidia-cudnn-cu11",)


def test_without_any_record_integrity_is_unread_not_sound(venv: Venv) -> None:
    info = venv.dist("nvidia-cudnn-cu12", "9.1.0.70", files=CUDNN)
    venv.at(f"{info}/RECORD").unlink()
    facts = venv.asked(python_env)
    assert facts["python.damaged"] == Unread("no RECORD of nvidia-cudnn-cu12 could be read")


def conda(root: Path) -> Venv:
    """A conda environment in place of the virtual one."""
    env = Venv(root, prefix="/opt/conda/envs/ml")
    env.at(f"{env.prefix}/pyvenv.cfg").unlink()
    for name in ("python-3.12.3-hab00c5b_0_cpython", "pytorch-2.4.0-py3.12_cuda12.1_cudnn9.1.0_0", "ld_impl-2.40-h_0"):
        env.write(f"{env.prefix}/conda-meta/{name}.json", "{}")
    return env


def test_conda_is_read_from_conda_meta_and_names_the_build(tmp_path: Path) -> None:
    env = conda(tmp_path)
    env.dist("torch", "2.4.0", installer="conda")
    facts = env.asked(python_env)
    assert value(facts, "python.environment") == "conda"
    assert value(facts, "python.version") == "3.12.3"
    assert column(facts, "package", "name") == ["torch", "pytorch"]
    assert column(facts, "package", "build") == [None, "py3.12_cuda12.1_cudnn9.1.0_0"]


def test_conda_moves_libraries_after_their_record_was_written(tmp_path: Path) -> None:
    env = conda(tmp_path)
    env.dist("triton", "3.0.0", files={"triton/_C/libtriton.so": b"t" * 50}, installer="conda")
    env.write(f"{env.site}/triton/_C/libtriton.so", b"t" * 70)
    env.write(f"{env.prefix}/conda-meta/triton-3.0.0-py312_0.json", "{}")
    assert value(env.asked(python_env), "python.damaged") == ()


def test_conda_reads_the_users_own_packages_unless_told_not_to(tmp_path: Path) -> None:
    env = conda(tmp_path)
    user = "/home/ada/.local/lib/python3.12/site-packages"
    env.dist("torch", "2.5.1", site=user)
    facts = env.asked(python_env, HOME="/home/ada")
    assert value(facts, "python.user_site") == user
    assert value(facts, "python.site_folders") == (user, env.site)
    quiet = env.asked(python_env, HOME="/home/ada", PYTHONNOUSERSITE="1")
    assert value(quiet, "python.site_folders") == (env.site,)


def speaking(place: Path, /, **told: object) -> Path:
    """An interpreter that says this of itself, after whatever a ``.pth`` file printed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    account = json.dumps({"implementation": "cpython", "user": "", "sites": [], **told})
    place.write_text(f"#!/bin/sh\necho 'a greeting from a .pth file'\necho '{account}'\n")
    place.chmod(0o755)
    return place


def test_a_virtual_environment_whose_python_was_upgraded_under_it_is_asked(tmp_path: Path) -> None:
    venv = Venv(Path("/"), "3.10.12", prefix=f"{tmp_path}/venv")
    empty = f"{tmp_path}/venv/lib/python3.12/site-packages"
    python = speaking(tmp_path / "usr/bin/python3.12", version="3.12.3", prefix=venv.prefix, base="/usr", path=[empty])
    Path(venv.python).unlink()
    Path(venv.python).symlink_to(python)
    venv.dist("torch", "2.1.0")
    facts = venv.asked(python_env)
    assert value(facts, "python.version") == "3.12.3"
    assert value(facts, "python.environment") == "venv"
    assert rows(facts, "package") == ()


def test_an_interpreter_without_files_of_its_own_is_asked(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    path = ["/usr/lib/python310.zip", "/usr/lib/python3.10", "/usr/lib/python3/dist-packages"]
    python = speaking(tmp_path / "python3", version="3.10.12", prefix="/usr", base="/usr", path=path)
    machine.write("/usr/lib/python3/dist-packages/numpy-1.21.5.egg-info/PKG-INFO", "Name: numpy\n")
    machine.write("/usr/lib/python3.10/EXTERNALLY-MANAGED")
    facts = dict(python_env.probe(machine.target(str(python))))
    assert value(facts, "python.environment") == "system"
    assert value(facts, "python.externally_managed") is True
    assert value(facts, "python.site_folders") == ("/usr/lib/python3/dist-packages",)
    assert column(facts, "package", "version") == ["1.21.5"]


def test_the_interpreters_own_account_matches_this_one() -> None:
    """A real child: this interpreter's base, which has no files that would settle it."""
    base = Path(sys.base_prefix) / "bin/python3"
    code = "import site, sys; print(sys.version.split()[0]); print(site.getsitepackages()[0])"
    told = finished([base, "-c", code]).out.split()
    site = site_of(Local("quick", str(base)))
    assert isinstance(site, Site)
    assert site.version == told[0]
    assert told[1] in site.folders or not Path(told[1]).exists()


def test_without_an_interpreter_all_is_absent_and_one_that_dies_leaves_all_unread(tmp_path: Path) -> None:
    facts = dict(python_env.probe(Machine(tmp_path / "none").target(None)))
    assert facts["python.version"] == Absent("there is no Python interpreter")
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho 'error while loading shared libraries: libpython3.10.so' >&2\nexit 127\n")
    python.chmod(0o755)
    facts = dict(python_env.probe(Machine(tmp_path / "m").target(str(python))))
    why = facts["package"]
    assert isinstance(why, Unread)
    assert "exit 127" in why.why
    assert "libpython3.10.so" in why.why
    assert isinstance(facts["python.damaged"], Unread)


def test_four_probes_ask_once(tmp_path: Path) -> None:
    target = Machine(tmp_path).target(None)
    calls: list[int] = []
    gate = threading.Barrier(4)

    def answer() -> int:
        calls.append(1)
        return len(calls)

    def ask(_: int) -> int:
        gate.wait(60)
        return once_per_target(target, "a question", answer)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [1] * 4
    assert calls == [1]
    assert once_per_target(target, "a question", lambda: 99) == 1


def test_a_package_folder_that_refuses_leaves_packages_unread(venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    target = venv.target(venv.python)
    real = target.listing

    def refusing(path: str) -> list[str]:
        if path == venv.site:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(target, "listing", refusing)  # root, who runs tests in containers, is refused nothing
    facts = dict(python_env.probe(target))
    assert facts["package"] == Unread(f"package folders could not be listed: {venv.site}: Permission denied")
    assert facts["python.damaged_files"] == facts["package"]
    assert isinstance(facts["python.version"], Known)
