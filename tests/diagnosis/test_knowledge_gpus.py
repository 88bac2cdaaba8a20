"""GPUs by the names that nvidia-smi, torch, lspci and vGPU guests print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.core.values import NOTHING, CannotJudge
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
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 30...", "8.6"),
        ("NVIDIA RTX 6000 Ada Gene...", "8.9"),
        ("Tesla V100-SXM2...", "7.0"),
        ("GeForce GTX 108...", "6.1"),
    ],
)
def test_a_name_cut_short_says_what_all_its_candidates_share(name: str, capability: str) -> None:
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


def test_a_system_on_chip_has_drivers_of_its_own() -> None:
    for look_up in (gpu_floor, gpu_ceiling, open_module):
        with pytest.raises(CannotJudge, match="system on chip"):
            look_up("8.7")


def test_single_cards_may_need_more_than_their_generation() -> None:
    """RTX 5050 first stands in the list of 575.64.03; Grace Hopper needs the open modules, H100 does not."""
    assert gpu_ceiling_of("GeForce GT 730") == "470"  # Fermi until 390, Kepler until 470
    assert gpu_floor_of("NVIDIA GeForce RTX 5050") == "575.64.03"
    assert gpu_floor_of("NVIDIA GeForce RTX 3090") == "455"
    assert open_module_of("NVIDIA GH200 480GB") == "required"
    assert open_module_of("NVIDIA H100 80GB HBM3") == "either"


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


def test_a_slice_does_not_say_what_its_host_has() -> None:
    assert candidate_gpus("NVIDIA L40S-48C")[0].virtual
    with pytest.raises(CannotJudge):
        has_nvlink("GRID A100-10C")


def test_datasheet_values() -> None:
    assert gpu_spec("NVIDIA H100 80GB HBM3", "memory_gib") == 80
    assert gpu_spec("NVIDIA H100 80GB HBM3", "nvlink") == 900
    assert gpu_spec("NVIDIA GeForce RTX 4090", "nvlink") is NOTHING
    assert gpu_generation("8.9") == "Ada Lovelace"


def test_products_by_pci_id() -> None:
    """pci.ids: 10de:2330 is GH100 [H100 SXM5 80GB]."""
    assert device_name("10de:2330") == "H100 80GB HBM3"
    assert device_name("10DE:2684") == "GeForce RTX 4090"
    assert device_name("1002:744c") is None
    assert device_name("2330") is None


def test_chips_by_pci_id() -> None:
    """pci.ids: 10de:1180 is GK104 [GeForce GTX 680]; the table has the chip's range, and the chip its generation."""
    assert device_name("10de:1180") == "GK104"
    assert gpu_ceiling(gpu_capability("GK104")) == "470"


@given(st.sampled_from(["NVIDIA ", "", "NVIDIA Corporation "]), st.sampled_from(["", " ", " MIG 1g.5gb", "/PCIe/SSE2"]))
def test_decoration_changes_nothing(before: str, after: str) -> None:
    for name in ("A100-SXM4-40GB", "GeForce RTX 3090", "Tesla T4", "L4"):
        assert gpu_capability(before + name + after) == gpu_capability(name)
