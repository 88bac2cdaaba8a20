"""Changes of the host and its services, of containers' settings, and of how fast the GPUs are together."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from gpudoctor.core.fact import Known
from tests.generated import tables
from tests.generated.changes import linux, planted
from tests.generated.changes_gpu import ampere, one
from tests.generated.consequences import cuda_fails, driver_files_gone, import_fails, module_unloaded, torch_sees_none
from tests.generated.draft import Draft
from tests.generated.machine import Machine
from tests.generated.software import SITE, wheels
from tests.generated.sound import draft_of


def bare(machine: Machine) -> bool:
    return machine.place == "bare"


def rack(machine: Machine) -> bool:
    """A node of an NVL72 rack, whose switches are elsewhere."""
    return bare(machine) and str(machine.gpu["name"]).startswith(("GB200", "GB300"))


def board(machine: Machine) -> bool:
    return bare(machine) and machine.nvswitch


def no_nvidia_gpu(draft: Draft, vendors: list[str]) -> None:
    module_unloaded(draft)
    driver_files_gone(draft)
    source = "/sys/bus/pci/devices"
    draft.tell(source, {"pci.nvidia_count": 0, "pci.gpu_vendors": vendors, "pci.nvidia_drivers": None})
    draft.groups["pci"] = []
    draft.groups["gpu"] = []
    draft.blind("NVML is not there", "gpu")


@planted("host.no-gpu", linux)
def no_gpu_on_the_bus(draft: Draft, machine: Machine, random: Random) -> None:
    no_nvidia_gpu(draft, random.choice(([], ["other"])))


@planted("host.other-vendor", linux)
def gpus_of_another_vendor(draft: Draft, machine: Machine, random: Random) -> None:
    no_nvidia_gpu(draft, random.choice((["amd"], ["intel"], ["amd", "intel"])))


@planted("driver.imex", rack)
def imex_failed(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("nvidia-imex.log", {"imex.state": "failed", "imex.errors": ["Failed to connect to node 3"]})


@planted("driver.fabric-pending", lambda machine: rack(machine) or (board(machine) and machine.gpu["cc"] == "9.0"))
def fabric_still_starting(draft: Draft, machine: Machine, random: Random) -> None:
    for gpu in draft.each("gpu"):
        gpu["fabric_state"] = Known(random.choice(("in progress", "not started")), "NVML")
    cuda_fails(draft, 802)


@planted("gpu.ecc", ampere)
def static_memory_worn_out(draft: Draft, machine: Machine, random: Random) -> None:
    one(draft, random, {"sram_threshold_exceeded": True})


@planted("gpu.ecc", ampere)
def as_many_rows_remapped_as_can_be(draft: Draft, machine: Machine, random: Random) -> None:
    one(draft, random, {"remapped_uncorrected": random.randrange(512, 600)})


@planted("gpu.ecc", lambda machine: machine.datacenter and bare(machine) and machine.old_hardware)
def as_many_pages_retired_as_can_be(draft: Draft, machine: Machine, random: Random) -> None:
    one(draft, random, {"retired_single_bit": 40, "retired_double_bit": random.randrange(23, 25)})


@planted("gpu.slow", lambda machine: machine.count > 2)
def one_gpu_slower_than_the_others(draft: Draft, machine: Machine, random: Random) -> None:
    slow = random.randrange(machine.count)
    rates = [{"gpu": index, "unit": "TFLOP/s", "value": 61.0, "others": 60.0} for index in range(machine.count)]
    rates[slow] = {**rates[slow], "value": 31.0}
    draft.rows("rate", "a measurement", rates)


@planted("container.toolkit", linux)
def runtime_whose_program_is_gone(draft: Draft, machine: Machine, random: Random) -> None:
    broken = "/etc/docker/daemon.json: the runtime nvidia names /usr/bin/nvidia-container-runtime, which is not there"
    draft.tell("the engines' configuration", {"container.broken": [broken]})


@planted("container.cdi-stale", linux)
def cdi_file_of_an_older_driver(draft: Draft, machine: Machine, random: Random) -> None:
    older = [driver.version for driver in tables.drivers() if driver.version != machine.driver.version]
    draft.tell(
        "/etc/cdi", {"container.cdi_specs": ["/etc/cdi/nvidia.yaml"], "container.cdi_driver": random.choice(older)}
    )


@planted("container.requirement", lambda machine: machine.place in ("docker", "podman"))
def image_of_a_newer_cuda(draft: Draft, machine: Machine, random: Random) -> bool:
    """NVIDIA_DISABLE_REQUIRE lets it start; its torch is of the newer CUDA, too."""
    major = int(machine.driver.cuda.split(".")[0])
    own = [one for one in tables.builds() if one.arch == machine.build.arch and one.cuda.startswith(f"{major + 1}.")]
    newer = [one for one in own if tables.has_code(one.archs, machine.gpu["cc"], machine.driver, one.cuda)]
    if not newer:
        return False
    build = random.choice(newer)
    fresh = draft_of(replace(machine, build=build, companions=(), toolkit=None))
    draft.facts, draft.groups = fresh.facts, fresh.groups
    draft.tell("environment", {"env.NVIDIA_REQUIRE_CUDA": f"cuda>={build.cuda}", "env.NVIDIA_DISABLE_REQUIRE": "1"})
    torch_sees_none(draft, "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old")
    return True


@planted("nccl.slow", board)
def peers_switched_off_on_an_nvlink_board(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("environment", {"env.NCCL_P2P_DISABLE": "1", "env.nccl_set": ["NCCL_P2P_DISABLE"]})


@planted("nccl.shm", lambda machine: bare(machine) and machine.count > 1)
def no_shared_memory_left(draft: Draft, machine: Machine, random: Random) -> None:
    draft.tell("/dev/shm", {"limits.shm_free_mib": random.randrange(8)})


@planted("env.library-path", lambda machine: bool(wheels(machine)))
def libraries_that_clash(draft: Draft, machine: Machine, random: Random) -> None:
    """By the files alone: what one library wants, the copy in front of torch's own does not define."""
    front = "/usr/local/cuda-12.1/lib64/libnvJitLink.so.12"
    draft.tell("environment", {"env.LD_LIBRARY_PATH": "/usr/local/cuda-12.1/lib64"})
    draft.tell("environment", {"env.library_path": ["/usr/local/cuda-12.1/lib64"]})
    draft.tell(
        "LD_LIBRARY_PATH", {"libs.shadowing": [f"{front} instead of {SITE}/nvidia/nvjitlink/libnvJitLink.so.12"]}
    )
    wanted = "__nvJitLinkComplete_12_4"
    draft.tell("symbols", {"libs.clashes": [f"libcusparse.so.12 wants {wanted}, which {front} does not define"]})
    import_fails(draft, f"ImportError: libcusparse.so.12: undefined symbol: {wanted}, version libnvJitLink.so.12")
