"""GPUs by the names that are printed, which compiled code runs on which, and what CUDA_VISIBLE_DEVICES leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.core.values import NOTHING, CannotJudge, Nothing
from gpudoctor.diagnosis.knowledge.archs import (
    arch_too_new,
    arch_too_old,
    clang_max,
    cuda_serves,
    gcc_max,
    needs_jit,
    nvcc_dropped,
    nvcc_for,
    nvcc_knows,
    runs_on,
)
from gpudoctor.diagnosis.knowledge.gpus import (
    candidate_gpus,
    device_name,
    gpu_capability,
    gpu_ceiling,
    gpu_ceiling_of,
    gpu_floor,
    gpu_floor_of,
    gpu_generation,
    gpu_known,
    gpu_spec,
    has_nvlink,
    is_datacenter,
    needs_fabric_manager,
    open_module,
    open_module_of,
)
from gpudoctor.diagnosis.knowledge.variables import visible_asked, visible_by_number, visible_by_uuid, visible_none


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        # as people write them
        ("gtx1080ti", "6.1"),
        ("TitanV", "7.0"),
        # as nvidia-smi and torch print them
        ("NVIDIA GeForce RTX 4070 Laptop GPU", "8.9"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA B300 SXM6 AC", "10.3"),
        ("NVIDIA Thor", "11.0"),
        # decorated
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "8.0"),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "7.5"),
        ("  nvidia geforce rtx 4090 ", "8.9"),
        ("GeForce RTX 3090/PCIe/SSE2", "8.6"),
        # slices of a hypervisor
        ("GRID A100-10C", "8.0"),
        ("GRID V100DX-32C", "7.0"),
        ("NVIDIA A100-3-20C", "8.0"),
        ("NVIDIA H100XM-80C", "9.0"),
        ("GRID RTX8000-4Q", "7.5"),
        # as lspci prints them
        ("NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)", "8.6"),
        ("NVIDIA Corporation GA106M (rev a1)", "8.6"),
        # not in the table: by family
        ("NVIDIA GeForce MX450", "7.5"),
        ("NVIDIA GeForce MX570 A", "8.6"),
        ("GeForce GTX 960M", "5.0"),
        ("GeForce GTX 965M", "5.2"),
        ("GeForce GTX 780", "3.5"),
        ("GeForce GTX 780M", "3.0"),
        ("Quadro K2200", "5.0"),
        ("Quadro M2000M", "5.0"),
        ("NVIDIA RTX PRO 3000 Blackwell Generation Laptop GPU", "12.0"),
        # cut short: what all its candidates share
        ("NVIDIA GeForce RTX 30...", "8.6"),
        ("NVIDIA RTX 6000 Ada Gene...", "8.9"),
        ("Tesla V100-SXM2...", "7.0"),
        ("GeForce GTX 108...", "6.1"),
        # newer or older than their name says
        ("NVIDIA GeForce RTX 3050 A Laptop GPU", "8.9"),
        ("GeForce GTX 675M", "2.1"),
        ("GeForce GTX 675MX", "3.0"),
        ("NVIDIA T400E", "7.5"),
        ("NVIDIA A10M", "8.6"),
    ],
)
def test_compute_capability_by_name(name: str, capability: str) -> None:
    """NVIDIA's two lists of CUDA GPUs."""
    assert gpu_capability(name) == capability


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce ...", "NVIDIA GeForce GTX...", "NVIDIA GeForce RTX 20...", "RTX 4000"]
)
def test_a_name_that_may_be_several_settles_nothing(name: str) -> None:
    """RTX 20 may be the 2050, an Ampere chip; RTX 4000 a Quadro RTX or an Ada Generation."""
    assert gpu_known(name)
    with pytest.raises(CannotJudge, match="does not settle"):
        gpu_capability(name)


def test_what_several_candidates_share_may_still_be_said() -> None:
    """GT 730 was sold with Fermi and Kepler chips; no current driver serves either."""
    with pytest.raises(CannotJudge):
        gpu_capability("NVIDIA GeForce GT 730")
    assert is_datacenter("NVIDIA GeForce ...") is False
    assert candidate_gpus("NVIDIA L40S-48C")[0].virtual
    with pytest.raises(CannotJudge):
        has_nvlink("GRID A100-10C")


@pytest.mark.parametrize("name", ["AMD Radeon RX 7900 XTX", "Intel Arc A770", "NVIDIA Graphics Device", "NVIDIA", "x"])
def test_what_is_not_in_the_tables_is_not_guessed(name: str) -> None:
    assert not gpu_known(name)
    with pytest.raises(CannotJudge, match="no GPU"):
        gpu_capability(name)


@pytest.mark.parametrize(
    ("capability", "floor", "ceiling", "module"),
    [
        ("3.5", "319", "470", "unsupported"),
        ("5.2", "343", "580", "unsupported"),
        ("6.1", "367", "580", "unsupported"),
        ("7.5", "410", None, "either"),
        ("8.0", "450", None, "either"),
        ("8.9", "520", None, "either"),
        ("9.0", "520", None, "either"),
        ("10.0", "570", None, "required"),
        ("12.0", "570", None, "required"),
    ],
)
def test_what_a_generation_asks_of_a_driver(capability: str, floor: str, ceiling: str | None, module: str) -> None:
    """NVIDIA's matrix of drivers and architectures; its page on the open kernel modules."""
    assert gpu_floor(capability) == floor
    assert gpu_ceiling(capability) == ceiling if ceiling else gpu_ceiling(capability) is NOTHING
    assert open_module(capability) == module


def test_single_cards_and_systems_on_chip_have_floors_of_their_own() -> None:
    """RTX 5050 first stands in the list of 575.64.03; Grace Hopper needs the open modules, H100 does not."""
    assert gpu_ceiling_of("GeForce GT 730") == "470"  # Fermi until 390, Kepler until 470
    assert gpu_floor_of("NVIDIA GeForce RTX 5050") == "575.64.03"
    assert gpu_floor_of("NVIDIA GeForce RTX 3090") == "455"
    assert open_module_of("NVIDIA GH200 480GB") == "required"
    assert open_module_of("NVIDIA H100 80GB HBM3") == "either"
    for look_up in (gpu_floor, gpu_ceiling, open_module):
        with pytest.raises(CannotJudge, match="system on chip"):
            look_up("8.7")


@pytest.mark.parametrize(
    ("name", "datacenter", "nvlink", "fabric"),
    [
        ("NVIDIA H100 80GB HBM3", True, True, True),
        ("NVIDIA H100 PCIe", True, True, False),
        ("NVIDIA A100-SXM4-40GB", True, True, True),
        ("NVIDIA GB200", True, True, False),
        ("NVIDIA L40S", True, False, False),
        ("NVIDIA GeForce RTX 3090", False, True, False),
        ("NVIDIA GeForce RTX 4090", False, False, False),
    ],
)
def test_what_a_product_has(name: str, datacenter: bool, nvlink: bool, fabric: bool) -> None:
    assert (is_datacenter(name), has_nvlink(name), needs_fabric_manager(name)) == (datacenter, nvlink, fabric)


def test_datasheet_values() -> None:
    assert gpu_spec("NVIDIA H100 80GB HBM3", "memory_gib") == 80
    assert gpu_spec("NVIDIA H100 80GB HBM3", "nvlink") == 900
    assert gpu_spec("NVIDIA GeForce RTX 4090", "nvlink") is NOTHING
    assert gpu_generation("8.9") == "Ada Lovelace"


def test_products_and_chips_by_pci_id() -> None:
    """pci.ids: 10de:2330 is GH100 [H100 SXM5 80GB]."""
    assert device_name("10de:2330") == "H100 80GB HBM3"
    assert device_name("10DE:2684") == "GeForce RTX 4090"
    assert device_name("1002:744c") is None
    assert device_name("2330") is None
    # pci.ids: 10de:1180 is GK104 [GeForce GTX 680]; the table has the chip's range, and the chip its generation.
    assert device_name("10de:1180") == "GK104"
    assert gpu_ceiling(gpu_capability("GK104")) == "470"


CU124 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
"""What torch 2.6.0+cu124 has: measured in its wheel."""

CU128 = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")

ARCHS = st.sampled_from(
    ["sm_50", "sm_60", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120"]
)
PTX = st.sampled_from(["compute_50", "compute_70", "compute_80", "compute_90", "compute_100", "compute_120"])
CAPABILITIES = st.sampled_from(["5.0", "5.2", "6.1", "7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "12.1"])


@pytest.mark.parametrize(
    ("archs", "gpu", "runs"),
    [
        (CU124, "8.9", True),  # sm_86 code runs on Ada
        (CU124, "12.0", False),
        (CU128, "12.1", True),  # sm_120 code runs on GB10
        (CU128, "6.1", False),
        (("sm_86",), "8.0", False),  # never downwards
        (("sm_90a",), "9.0", True),
        (("sm_100a",), "10.3", False),
        (("sm_100f",), "10.3", True),
        (("sm_100f",), "12.0", False),
        (("compute_90",), "12.0", True),
        (("compute_90a",), "10.0", False),
        (("compute_100f",), "10.3", True),
        (("compute_120",), "9.0", False),
        (("sm_80", "sm_86"), "8.7", False),  # Orin runs only its own
        (("sm_87",), "8.7", True),
        (("compute_80",), "8.7", True),
        (("sm_101",), "11.0", True),  # Thor before CUDA 13 called it so
    ],
)
def test_runs(archs: tuple[str, ...], gpu: str, runs: bool) -> None:
    """CUDA C++ programming guide, compute capabilities; torch's own table of which code serves which device."""
    assert runs_on(archs, gpu) is runs


def test_too_new_and_too_old_are_about_the_ends_of_the_list_and_a_gap_is_neither() -> None:
    assert arch_too_new(CU124, "12.0")
    assert not arch_too_old(CU124, "12.0")
    assert arch_too_old(CU128, "6.1")
    assert not arch_too_new(CU128, "6.1")
    assert not arch_too_new(CU124, "8.9")
    assert [ask(("sm_80", "sm_120"), "9.0") for ask in (runs_on, arch_too_new, arch_too_old)] == [False] * 3


def test_ptx_alone_must_be_compiled_by_the_driver() -> None:
    assert needs_jit(("sm_80", "compute_90"), "12.0")
    assert not needs_jit(("sm_80", "compute_80"), "8.6")


@pytest.mark.parametrize("archs", ["sm_80 sm_90", "sm_80;sm_90", "8.0;9.0+PTX", ["sm80", "sm90"]])
def test_the_ways_lists_are_written(archs: object) -> None:
    assert runs_on(archs, "8.6")


@given(st.lists(ARCHS, min_size=1), CAPABILITIES)
def test_at_most_one_of_runs_too_new_too_old(archs: list[str], gpu: str) -> None:
    assert [runs_on(archs, gpu), arch_too_new(archs, gpu), arch_too_old(archs, gpu)].count(True) <= 1


@given(st.lists(ARCHS, min_size=1), ARCHS, CAPABILITIES)
def test_more_code_never_hurts(archs: list[str], more: str, gpu: str) -> None:
    assert not runs_on(archs, gpu) or runs_on([*archs, more], gpu)


@given(st.lists(ARCHS | PTX, min_size=1), PTX, CAPABILITIES)
def test_ptx_reaches_every_newer_gpu(archs: list[str], ptx: str, gpu: str) -> None:
    number = int(ptx.removeprefix("compute_"))
    assert runs_on([*archs, ptx], gpu) or int(gpu.replace(".", "")) < number


@given(st.lists(ARCHS, min_size=1), CAPABILITIES)
def test_the_order_of_the_list_does_not_matter(archs: list[str], gpu: str) -> None:
    assert runs_on(archs, gpu) == runs_on(archs[::-1], gpu)


@pytest.mark.parametrize("archs", [(), ("",), "", ("gfx90a",), ("sm_80", "gfx1100"), None])
def test_an_empty_or_foreign_list_says_nothing(archs: object) -> None:
    """`torch.cuda.get_arch_list()` is empty where CUDA is unavailable, which is no proof of anything."""
    with pytest.raises(CannotJudge):
        runs_on(archs, "8.0")


@pytest.mark.parametrize(
    ("nvcc", "gpu", "knows", "dropped"),
    [
        ("11.7", "8.9", False, False),
        ("11.8", "8.9", True, False),
        ("12.0", "3.7", False, True),
        ("12.8", "12.0", True, False),
        ("V12.9.86", "12.1", True, False),
        ("13.0", "7.0", False, True),
        ("12.8", "11.0", True, False),
    ],
)
def test_targets(nvcc: str, gpu: str, knows: bool, dropped: bool) -> None:
    """ptxas --help of the nvcc wheels; the nvcc guides before 11.7."""
    assert nvcc_knows(nvcc, gpu) is knows
    assert nvcc_dropped(nvcc, gpu) is dropped


def test_a_newer_nvcc_of_the_same_major_keeps_what_is_known_and_may_add_more() -> None:
    assert nvcc_knows("13.9", "9.0")
    assert nvcc_dropped("13.9", "6.1")
    with pytest.raises(CannotJudge, match="ends before"):
        nvcc_knows("13.9", "14.0")
    with pytest.raises(CannotJudge, match="no nvcc 14"):
        nvcc_knows("14.0", "9.0")


def test_first_toolkit_of_a_generation_and_limits_of_an_unknown_nvcc() -> None:
    assert nvcc_for("8.9") == "11.8"
    assert nvcc_for("12.0") == "12.8"
    assert nvcc_for("12.1") == "12.9"
    with pytest.raises(CannotJudge):
        gcc_max("13.9")
    assert clang_max("12.8") == 19


@pytest.mark.parametrize(("nvcc", "gcc"), [("11.8", 11), ("12.1", 12), ("12.4", 13), ("12.8", 14), ("13.0", 15)])
def test_newest_gcc(nvcc: str, gcc: int) -> None:
    """host_config.h of each release."""
    assert gcc_max(nvcc) == gcc


@pytest.mark.parametrize(
    ("cuda", "gpu", "serves"),
    [("11.7", "8.9", True), ("12.6", "12.0", False), ("13.0", "7.0", False), ("10.2", "8.0", False)],
)
def test_what_any_build_of_a_cuda_can_serve(cuda: str, gpu: str, serves: bool) -> None:
    assert cuda_serves(cuda, gpu) is serves


UUIDS = ("GPU-aaaa1111", "GPU-aaab2222", "GPU-bbbb3333", "GPU-cccc4444")


def seen(value: str) -> int:
    """GPUs of four that are left visible."""
    if visible_none(value):
        return 0
    counts = (visible_by_number(value, len(UUIDS)), visible_by_uuid(value, UUIDS))
    return next((count for count in counts if not isinstance(count, Nothing)), 0)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("0", 1),
        ("3,0", 2),
        ("1x,2y", 2),
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),
        ("4", 0),
        ("0,0", 0),
        ("all", 0),
        ("NoDevFiles", 0),
        (",0", 0),
        ("0,", 1),
        ("0,,1", 1),
        ("GPU-aaaa1111", 1),
        ("GPU-b,GPU-c", 2),
        ("GPU-b,GPU-aaa,GPU-c", 1),
        ("GPU-b,GPU-bbbb3333", 0),
        ("GPU-zz,GPU-b", 0),
        ("GPU-b,0", 1),
    ],
)
def test_what_is_left_visible(value: str, count: int) -> None:
    assert seen(value) == count


def test_each_count_is_only_for_lists_of_its_kind() -> None:
    assert isinstance(visible_by_number("GPU-aaaa1111", 4), Nothing)
    assert isinstance(visible_by_uuid("0,1", UUIDS), Nothing)
    assert isinstance(visible_by_number(NOTHING, 4), Nothing)
    assert not visible_none("None")
    with pytest.raises(CannotJudge):
        visible_by_number("0", "many")


@pytest.mark.parametrize(("value", "count"), [("0,1,2", 3), ("0,1,", 2), ("", 0)])
def test_how_many_are_named(value: str, count: int) -> None:
    assert visible_asked(value) == count
