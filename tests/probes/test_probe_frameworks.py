"""TensorFlow, JAX, triton and extensions, as their wheels leave them on disk, and what real libraries need."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoctor.core.fact import Absent, Known, Unread
from gpudoctor.core.versions import BuildTag
from gpudoctor.probes import frameworks, torch_build
from gpudoctor.probes._binaries import DefinedSymbols, MalformedError, opened, undefined_symbols
from gpudoctor.probes._extensions import parse_build_tag
from tests import needs
from tests.environments import CUBIN, PTX, Machine, Venv, column, compiled, container, elf, entry, rows, value

BUILD_INFO = """# Auto-generated module providing information about the build.
import collections

build_info = collections.OrderedDict([('cpu_compiler', '/usr/lib/llvm-18/bin/clang'), ('cuda_compute_capabilities',
['sm_60', 'sm_70', 'sm_80', 'sm_89', 'compute_90']), ('cuda_version', '12.5.1'), ('cudnn_version', '9'),
('is_cuda_build', True), ('is_rocm_build', False), ('is_tensorrt_build', False)])
"""


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv(tmp_path)


def test_nothing_installed_is_knowledge(venv: Venv) -> None:
    facts = venv.asked(frameworks)
    for name in ("tf.version", "tf.cuda", "jax.version", "jax.plugin", "triton.version", "bitsandbytes.cuda_builds"):
        assert isinstance(facts[name], Absent), name
    assert rows(facts, "extension") == ()


def test_no_interpreter_leaves_nothing_out(tmp_path: Path) -> None:
    facts = dict(frameworks.probe(Machine(tmp_path).target(None)))
    names = {spec.name.rpartition(".")[0] if spec.group else spec.name for spec in frameworks.FACTS}
    assert set(facts) == names


def test_tensorflow_names_its_cuda_where_it_has_one(venv: Venv) -> None:
    venv.dist("tensorflow", "2.18.0", files={"tensorflow/python/platform/build_info.py": BUILD_INFO.encode()})
    facts = venv.asked(frameworks)
    assert value(facts, "tf.version") == "2.18.0"
    assert value(facts, "tf.built_with_cuda") is True
    assert value(facts, "tf.cuda") == "12.5.1"
    assert value(facts, "tf.cudnn") == "9"


def test_a_cpu_tensorflow_names_none(venv: Venv) -> None:
    text = "build_info = {u'is_cuda_build': False, u'is_rocm_build': False}\n"
    venv.dist("tensorflow-cpu", "2.11.0", files={"tensorflow/python/platform/build_info.py": text.encode()})
    facts = venv.asked(frameworks)
    assert value(facts, "tf.built_with_cuda") is False
    assert isinstance(facts["tf.cuda"], Absent)


def test_tensorflow_without_build_info_is_unread(venv: Venv) -> None:
    venv.dist("tensorflow", "2.18.0")
    assert isinstance(venv.asked(frameworks)["tf.built_with_cuda"], Unread)


def test_tensorflows_wheels_are_those_of_its_extra(venv: Venv) -> None:
    venv.dist("tensorflow", "2.18.0", ('nvidia-cudnn-cu12==9.3.0.75; extra == "and-cuda"', "numpy<2.1"))
    venv.dist("nvidia-cudnn-cu12", "9.1.0.70")
    assert value(venv.asked(frameworks), "tf.pins_unmet") == ("nvidia-cudnn-cu12 wants 9.3.0.75, has 9.1.0.70",)


def test_jax_without_a_plugin_has_none(venv: Venv) -> None:
    venv.dist("jax", "0.5.0")
    venv.dist("jaxlib", "0.5.0")
    facts = venv.asked(frameworks)
    assert (value(facts, "jax.version"), value(facts, "jax.jaxlib")) == ("0.5.0", "0.5.0")
    assert facts["jax.plugin"] == Absent("no jax-cuda12-plugin or jax-cuda13-plugin is installed")


def test_jax_with_its_plugin(venv: Venv) -> None:
    venv.dist("jax", "0.5.0")
    venv.dist("jaxlib", "0.5.0")
    venv.dist("jax-cuda12-plugin", "0.4.35", ('nvidia-cudnn-cu12<10.0,>=9.1; extra == "with-cuda"',))
    venv.dist("nvidia-cudnn-cu12", "8.9.7.29")
    facts = venv.asked(frameworks)
    assert (value(facts, "jax.plugin"), value(facts, "jax.plugin_cuda")) == ("0.4.35", 12)
    assert value(facts, "jax.pins_unmet") == ("nvidia-cudnn-cu12 wants <10.0,>=9.1, has 8.9.7.29",)


def test_older_jaxlib_holds_the_cuda_code_itself(venv: Venv) -> None:
    venv.dist("jax", "0.4.14")
    venv.dist("jaxlib", "0.4.14+cuda12.cudnn89")
    facts = venv.asked(frameworks)
    assert (value(facts, "jax.plugin"), value(facts, "jax.plugin_cuda")) == ("0.4.14+cuda12.cudnn89", 12)


@pytest.mark.parametrize(
    ("pin", "wanted", "fits"), [("==3.1.0", "3.1.0", True), ("==3.0.0", "3.0.0", False), ("~=3.1.0", None, True)]
)
def test_triton_is_held_against_torchs_requirement(venv: Venv, pin: str, wanted: str | None, fits: bool) -> None:
    venv.torch("2.5.1", "12.4", (f'triton{pin}; platform_system == "Linux" and python_version < "3.13"',))
    venv.dist("triton", "3.1.0")
    facts = venv.asked(frameworks)
    assert value(facts, "triton.version") == "3.1.0"
    if wanted:
        assert value(facts, "triton.wanted") == wanted
    else:
        assert isinstance(facts["triton.wanted"], Absent)
    assert value(facts, "triton.fits") is fits


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("2.6.3+cu123torch2.4cxx11abiFALSE", BuildTag("2.4", "12.3", "pre-cxx11")),
        ("2.7.4.post1+cu12torch2.6cxx11abiTRUE", BuildTag("2.6", "12", "cxx11")),
        ("flash_attn-2.8.3%2Bcu12torch2.7cxx11abiTRUE-cp312-cp312-linux_x86_64.whl", BuildTag("2.7", "12", "cxx11")),
        ("2.1.2+pt24cu121", BuildTag("2.4", "12.1", "")),
        ("2.1.2+pt113cu117", BuildTag("1.13", "11.7", "")),
        ("2.1.2+pt210cu128", BuildTag("2.10", "12.8", "")),
        ("0.11.0+torch271.cu118", BuildTag("2.7.1", "11.8", "")),
        ("0.0.28+cu118", BuildTag("", "11.8", "")),
        ("0.0.28.post3", BuildTag()),
        ("0.6.3.post1+cpu", BuildTag()),
    ],
)
def test_build_tags(text: str, tag: BuildTag) -> None:
    assert parse_build_tag(text) == tag


def test_an_extension_says_what_it_was_built_for(venv: Venv) -> None:
    venv.dist("flash-attn", "2.6.3+cu123torch2.4cxx11abiFALSE")
    venv.dist("xformers", "0.0.28.post3", ("torch==2.5.1", "numpy"))
    venv.dist("deepspeed", "0.15.4", ("torch",))
    facts = venv.asked(frameworks)
    assert column(facts, "extension", "name") == ["deepspeed", "flash-attn", "xformers"]
    assert column(facts, "extension", "torch") == [None, "2.4", "2.5.1"]
    assert column(facts, "extension", "cuda") == [None, "12.3", None]
    assert column(facts, "extension", "abi") == [None, "pre-cxx11", None]


def test_a_wheel_installed_by_url_keeps_its_tag_in_direct_url(venv: Venv) -> None:
    info = venv.dist("flash-attn", "2.7.3")
    wheel = "flash_attn-2.7.3+cu12torch2.5cxx11abiFALSE-cp312-cp312-linux_x86_64.whl"
    venv.write(f"{info}/direct_url.json", f'{{"archive_info": {{}}, "url": "https://example.org/v2.7.3/{wheel}"}}')
    facts = venv.asked(frameworks)
    assert column(facts, "extension", "torch") == ["2.5"]
    assert column(facts, "extension", "cuda") == ["12"]


def bitsandbytes(venv: Venv) -> None:
    libraries = ("libbitsandbytes_cpu.so", "libbitsandbytes_cuda118.so", "libbitsandbytes_cuda124.so")
    venv.dist("bitsandbytes", "0.45.0", files={f"bitsandbytes/{name}": b"" for name in libraries})


@pytest.mark.parametrize(
    ("cuda", "environ", "has"), [("12.4", {}, True), ("12.8", {}, False), ("12.8", {"BNB_CUDA_VERSION": "124"}, True)]
)
def test_bitsandbytes_has_a_library_per_cuda(venv: Venv, cuda: str, environ: dict[str, str], has: bool) -> None:
    bitsandbytes(venv)
    venv.torch("2.7.0", cuda)
    facts = venv.asked(frameworks, **environ)
    assert value(facts, "bitsandbytes.cuda_builds") == ("11.8", "12.4")
    assert value(facts, "bitsandbytes.has_build") is has


def test_bitsandbytes_beside_a_cpu_torch_needs_none(venv: Venv) -> None:
    bitsandbytes(venv)
    venv.torch("2.7.0+cpu")
    assert venv.asked(frameworks)["bitsandbytes.has_build"] == Absent("torch is no CUDA build")


ADD, ERROR, NEW = "_ZN2at4_ops3add4callERKNS_6TensorE", "_ZN3c105ErrorC2Ev", "_ZN3c104cuda9c10_cuda_checkEi"


def calls(*names: str) -> str:
    """C code that needs these functions."""
    return "".join(f"void {name}(void);\n" for name in names) + f"void init(void) {{ {'(); '.join(names)}(); }}\n"


@pytest.fixture
def env(tmp_path: Path) -> Venv:
    env = Venv(tmp_path)
    package = env.torch("2.5.1+cu124", "12.4")
    c10 = compiled(env.at(f"{package}/lib/libc10.so"), source=f"void {ERROR}(void) {{}}\n")
    compiled(
        env.at(f"{package}/lib/libtorch_cpu.so"), [c10], source=f"void {ADD}(void) {{}}\nextern void {ERROR}(void);"
    )
    return env


def install(env: Venv, name: str, library: str, source: str, *needed: str) -> dict[str, object]:
    """Install an extension of one compiled library, and say what is read of it."""
    path = env.at(f"{env.site}/{library}")
    links = [env.at(f"{env.site}/torch/lib/{one}") for one in ("libc10.so", "libtorch_cpu.so")]
    made = [compiled(env.at(f"/elsewhere/{one}")) for one in needed]
    compiled(path, [*links, *made], source=source)
    env.dist(name, "1.0", files={library: path.read_bytes()})
    return dict(rows(env.asked(frameworks), "extension")[0])


def test_an_extension_names_what_it_misses(env: Venv) -> None:
    row = install(env, "flash-attn", "flash_attn_2_cuda.so", calls(ADD, ERROR, "printf"))
    assert row["missing_symbols"] == Known((), "flash_attn_2_cuda.so")
    assert row["missing_libraries"] == Known((), "flash_attn_2_cuda.so")
    row = install(env, "flash-attn", "flash_attn_2_cuda.so", calls(ADD, NEW, "printf"))
    assert row["missing_symbols"] == Known((NEW,), "flash_attn_2_cuda.so")
    row = install(env, "flash-attn", "flash_attn_2_cuda.so", calls(ADD), "libcudart.so.11.0", "libcuda.so.1")
    assert row["missing_libraries"] == Known(
        ("libcudart.so.11.0, which flash_attn_2_cuda.so needs",), "flash_attn_2_cuda.so"
    )


@pytest.mark.parametrize(("function", "said"), [(ADD, ()), (NEW, (f"torchvision (_C.so) wants {NEW}",))])
def test_a_companion_is_held_against_this_torch_too(env: Venv, function: str, said: tuple[str, ...]) -> None:
    install(env, "flash-attn", "torchvision/_C.so", calls(function))
    library = env.at(f"{env.site}/torchvision/_C.so").read_bytes()
    env.dist("torchvision", "0.20.1", files={"torchvision/_C.so": library})
    assert value(env.asked(torch_build), "torch.companions_broken") == said


def test_what_a_sibling_defines_is_not_missing(env: Venv) -> None:
    sibling = compiled(env.at(f"{env.site}/fused/libcore.so"), source=f"void {NEW}(void) {{}}\n")
    path = env.at(f"{env.site}/fused/_C.so")
    compiled(path, [env.at(f"{env.site}/torch/lib/libc10.so")], source=calls(NEW))
    files = {"fused/_C.so": path.read_bytes(), "fused/libcore.so": sibling.read_bytes()}
    env.dist("apex", "0.1", files=files)
    row = rows(env.asked(frameworks), "extension")[0]
    assert isinstance(row["missing_symbols"], Known)
    assert row["missing_symbols"].value == ()


def test_of_bitsandbytes_one_library_is_used_and_the_others_may_miss_theirs(env: Venv) -> None:
    row = install(env, "bitsandbytes", "bitsandbytes/libbitsandbytes_cuda118.so", "", "libcudart.so.11.0")
    assert row["missing_libraries"] == Absent("it has no compiled library that it always loads")


def test_architectures_of_its_own_kernels(env: Venv) -> None:
    raw = elf({".nv_fatbin": container(entry(CUBIN, 80), entry(CUBIN, 90), entry(PTX, 90))})
    env.dist("mamba-ssm", "2.2.4", files={"selective_scan_cuda.so": raw})
    row = rows(env.asked(frameworks), "extension")[0]
    assert row["archs"] == Known(("sm_80", "sm_90", "compute_90"), "selective_scan_cuda.so")


def test_a_library_that_is_gone_leaves_its_facts_unread(env: Venv) -> None:
    install(env, "flash-attn", "flash_attn_2_cuda.so", calls(ADD))
    env.at(f"{env.site}/flash_attn_2_cuda.so").unlink()
    row = rows(env.asked(frameworks), "extension")[0]
    assert isinstance(row["missing_symbols"], Unread)
    assert isinstance(row["archs"], Unread)


def test_without_torch_there_is_nothing_to_hold_it_against(tmp_path: Path) -> None:
    env = Venv(tmp_path)
    env.dist("flash-attn", "2.7.3")
    assert isinstance(rows(env.asked(frameworks), "extension")[0]["missing_symbols"], Absent)


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
