"""Extensions compiled against a torch with other functions, another CUDA or another GPU: real libraries, not loaded."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.probes import frameworks, torch_build
from gpudoctor.probes._binaries import DefinedSymbols, MalformedError, opened, undefined_symbols
from tests import needs
from tests.environments import CUBIN, PTX, Venv, compiled, container, elf, entry, rows, value

ADD, ERROR, NEW = "_ZN2at4_ops3add4callERKNS_6TensorE", "_ZN3c105ErrorC2Ev", "_ZN3c104cuda9c10_cuda_checkEi"


def calls(*names: str) -> str:
    """C code that needs these functions."""
    return "".join(f"void {name}(void);\n" for name in names) + f"void init(void) {{ {'(); '.join(names)}(); }}\n"


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    venv = Venv(tmp_path)
    package = venv.torch("2.5.1+cu124", "12.4")
    c10 = compiled(venv.at(f"{package}/lib/libc10.so"), source=f"void {ERROR}(void) {{}}\n")
    compiled(
        venv.at(f"{package}/lib/libtorch_cpu.so"), [c10], source=f"void {ADD}(void) {{}}\nextern void {ERROR}(void);"
    )
    return venv


def install(venv: Venv, name: str, library: str, source: str, *needed: str) -> dict[str, object]:
    """Install an extension of one compiled library, and say what is read of it."""
    path = venv.at(f"{venv.site}/{library}")
    links = [venv.at(f"{venv.site}/torch/lib/{one}") for one in ("libc10.so", "libtorch_cpu.so")]
    made = [compiled(venv.at(f"/elsewhere/{one}")) for one in needed]
    compiled(path, [*links, *made], source=source)
    venv.dist(name, "1.0", files={library: path.read_bytes()})
    return dict(rows(venv.asked(frameworks), "extension")[0])


def test_an_extension_of_this_torch_misses_nothing(venv: Venv) -> None:
    row = install(venv, "flash-attn", "flash_attn_2_cuda.so", calls(ADD, ERROR, "printf"))
    assert row["missing_symbols"] == Known((), "flash_attn_2_cuda.so")
    assert row["missing_libraries"] == Known((), "flash_attn_2_cuda.so")


def test_an_extension_of_another_torch_names_what_is_missing(venv: Venv) -> None:
    row = install(venv, "flash-attn", "flash_attn_2_cuda.so", calls(ADD, NEW, "printf"))
    assert row["missing_symbols"] == Known((NEW,), "flash_attn_2_cuda.so")


@pytest.mark.parametrize(("function", "said"), [(ADD, ()), (NEW, (f"torchvision (_C.so) wants {NEW}",))])
def test_a_companion_is_held_against_this_torch_too(venv: Venv, function: str, said: tuple[str, ...]) -> None:
    install(venv, "flash-attn", "torchvision/_C.so", calls(function))
    library = venv.at(f"{venv.site}/torchvision/_C.so").read_bytes()
    venv.dist("torchvision", "0.20.1", files={"torchvision/_C.so": library})
    assert value(venv.asked(torch_build), "torch.companions_broken") == said


def test_what_a_sibling_defines_is_not_missing(venv: Venv) -> None:
    sibling = compiled(venv.at(f"{venv.site}/fused/libcore.so"), source=f"void {NEW}(void) {{}}\n")
    path = venv.at(f"{venv.site}/fused/_C.so")
    compiled(path, [venv.at(f"{venv.site}/torch/lib/libc10.so")], source=calls(NEW))
    files = {"fused/_C.so": path.read_bytes(), "fused/libcore.so": sibling.read_bytes()}
    venv.dist("apex", "0.1", files=files)
    row = rows(venv.asked(frameworks), "extension")[0]
    assert isinstance(row["missing_symbols"], Known)
    assert row["missing_symbols"].value == ()


def test_a_library_of_another_cuda_is_named_with_what_it_needs(venv: Venv) -> None:
    row = install(venv, "flash-attn", "flash_attn_2_cuda.so", calls(ADD), "libcudart.so.11.0", "libcuda.so.1")
    assert row["missing_libraries"] == Known(
        ("libcudart.so.11.0, which flash_attn_2_cuda.so needs",), "flash_attn_2_cuda.so"
    )


def test_of_bitsandbytes_one_library_is_used_and_the_others_may_miss_theirs(venv: Venv) -> None:
    row = install(venv, "bitsandbytes", "bitsandbytes/libbitsandbytes_cuda118.so", "", "libcudart.so.11.0")
    assert row["missing_libraries"] == Absent("it has no compiled library that it always loads")


def test_architectures_of_its_own_kernels(venv: Venv) -> None:
    raw = elf({".nv_fatbin": container(entry(CUBIN, 80), entry(CUBIN, 90), entry(PTX, 90))})
    venv.dist("mamba-ssm", "2.2.4", files={"selective_scan_cuda.so": raw})
    row = rows(venv.asked(frameworks), "extension")[0]
    assert row["archs"] == Known(("sm_80", "sm_90", "compute_90"), "selective_scan_cuda.so")


def test_a_library_that_is_gone_leaves_its_facts_unread(venv: Venv) -> None:
    install(venv, "flash-attn", "flash_attn_2_cuda.so", calls(ADD))
    venv.at(f"{venv.site}/flash_attn_2_cuda.so").unlink()
    row = rows(venv.asked(frameworks), "extension")[0]
    assert isinstance(row["missing_symbols"], Unread)
    assert isinstance(row["archs"], Unread)


def test_without_torch_there_is_nothing_to_hold_it_against(tmp_path: Path) -> None:
    venv = Venv(tmp_path)
    venv.dist("flash-attn", "2.7.3")
    assert isinstance(rows(venv.asked(frameworks), "extension")[0]["missing_symbols"], Absent)


def test_names_are_those_that_nm_lists(tmp_path: Path) -> None:
    """A library with enough names for long hash chains, and `nm` as the judge."""
    names = [f"_ZN2at4_ops{index % 97}op{index}E" for index in range(4000)]
    defined, other = names[:3000], names[3000:]
    source = "".join(f"void {name}(void) {{}}\n" for name in defined) + calls(*other)
    path = compiled(tmp_path / "libtorch_cpu.so", source=source)
    nm = needs.program("nm")
    listed = subprocess.run([nm, "-D", str(path)], check=True, capture_output=True, text=True).stdout.splitlines()
    theirs = {line.split()[-1] for line in listed if " T " in line}
    with ExitStack() as stack:
        file = stack.enter_context(opened(path))
        ours = DefinedSymbols(file)
        assert {name for name in names if name in ours} == theirs & set(names)
        assert set(undefined_symbols(file)) == set(other)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_libraries_end_in_an_answer_or_a_named_error(sound: bytes, tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 20))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.so"
    path.write_bytes(raw)
    try:
        with opened(path) as file:
            asked = [*undefined_symbols(file), *file.dynamic().needed, ADD, ERROR]
            defined = DefinedSymbols(file)
            found = [name for name in asked if name in defined]
    except MalformedError:
        return  # any other exception fails the test
    assert set(found) <= set(asked)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small library whose tables lie in its first and last pages, where the changes mostly hit."""
    folder = tmp_path_factory.mktemp("sound")
    c10 = compiled(folder / "libc10.so", source=f"void {ERROR}(void) {{}}\n")
    return compiled(folder / "_C.so", [c10], source=f"void {ADD}(void) {{}}\n" + calls(ERROR, NEW)).read_bytes()
