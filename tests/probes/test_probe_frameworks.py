"""TensorFlow, JAX, triton and extensions, as their wheels leave them on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.core.fact import Absent, Unread
from gpudoctor.probes import frameworks
from gpudoctor.probes._extensions import BuildTag, parse_build_tag
from tests.environments import Machine, Venv, column, rows, value

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


def test_tensorflow_names_its_cuda_and_cudnn(venv: Venv) -> None:
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
