"""``python -m tests.gpu`` over simulated machines: what it leaves behind, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests import needs
from tests.gpu import steps
from tests.processes import Ran
from tests.sim import scenario
from tests.sim.root import Machine, libraries_of

SMI = "/usr/bin/nvidia-smi"
_XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
 <driver_version>570.195.03</driver_version><cuda_version>12.8</cuda_version><attached_gpus>1</attached_gpus>
 <gpu id="00000000:06:00.0">
  <product_name>NVIDIA A10</product_name><product_architecture>Ampere</product_architecture>
  <display_active>Disabled</display_active><persistence_mode>Enabled</persistence_mode>
  <mig_mode><current_mig>N/A</current_mig></mig_mode>
  <serial>1322221000000</serial><uuid>GPU-72f7d108-ffd3-52a1-a91f-ebb07ace9680</uuid><minor_number>0</minor_number>
  <vbios_version>94.02.75.00.01</vbios_version><inforom_version><img_version>G133.0210.00.04</img_version></inforom_version>
  <pci><pci_gpu_link_info>
   <pcie_gen><max_link_gen>4</max_link_gen><max_device_link_gen>4</max_device_link_gen></pcie_gen>
   <link_widths><max_link_width>16x</max_link_width></link_widths>
  </pci_gpu_link_info></pci>
  <fb_memory_usage><total>23028 MiB</total><reserved>497 MiB</reserved></fb_memory_usage>
  <bar1_memory_usage><total>32768 MiB</total></bar1_memory_usage>
  <compute_mode>Default</compute_mode>
  <ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
  <remapped_rows>
   <remapped_row_corr>0</remapped_row_corr><remapped_row_unc>0</remapped_row_unc>
   <remapped_row_pending>No</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
  </remapped_rows>
  <temperature>
   <gpu_temp_max_threshold>101 C</gpu_temp_max_threshold><gpu_temp_slow_threshold>98 C</gpu_temp_slow_threshold>
   <gpu_temp_max_gpu_threshold>95 C</gpu_temp_max_gpu_threshold>
  </temperature>
  <gpu_power_readings>
   <current_power_limit>150.00 W</current_power_limit><default_power_limit>150.00 W</default_power_limit>
   <min_power_limit>100.00 W</min_power_limit><max_power_limit>150.00 W</max_power_limit>
  </gpu_power_readings>
  <max_clocks><sm_clock>1695 MHz</sm_clock><mem_clock>6251 MHz</mem_clock></max_clocks>
 </gpu>
</nvidia_smi_log>
"""
_CSV = "NVIDIA A10, GPU-72f7d108-ffd3-52a1-a91f-ebb07ace9680, 23028, 4, 16, 150.00, 1695, 94.02.75.00.01\n"
_FIELDS = "name,uuid,memory.total,pcie.link.gen.max,pcie.link.width.max,power.default_limit,clocks.max.sm,vbios_version"


def run(root: Path, profile: str, words: str, commands: list[dict[str, Any]], timeout: float = 500) -> Ran:
    """The command in a simulated machine, its results in /results."""
    machine = Machine(scenario.expanded({"profile": profile, "host": {"commands": commands}}), root)
    machine.lend(*libraries_of(str(Path(jsonschema_rs.__file__).parent / "jsonschema_rs.abi3.so")))
    line = f"cd {needs.REPOSITORY} && export GPUDOCTOR_TORCH_PYTHON=/none"
    line += f" && exec {sys.executable} -m tests.gpu --out /results {words}"
    return machine.run(["/bin/sh", "-c", line], timeout=timeout)


def printed(*words: str, out: str) -> dict[str, Any]:
    return {"argv": [SMI, *words], "out": out}


@pytest.mark.full
def test_one_gpu_gives_one_folder_of_results(tmp_path: Path) -> None:
    """All steps but the tests of kernels, which the simulated GPU does not compute; no torch is there."""
    smi = [
        printed(out="NVIDIA-SMI 570.195.03\n"),
        printed("-L", out="GPU 0: NVIDIA A10 (UUID: GPU-72f7d108-ffd3-52a1-a91f-ebb07ace9680)\n"),
        printed("-q", out="==============NVSMI LOG==============\n"),
        printed("-q", "-x", out=_XML),
        printed(f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits", out=_CSV),
    ]
    names = [step.name for step in steps.every()]
    chosen = [name for name in names if name != "tests driver_rung"]
    ran = run(tmp_path, "a10", " ".join(f"--only '{name}'" for name in chosen), smi)
    folder = tmp_path / "results"
    summary = (folder / "summary.md").read_text()
    assert ran.code == 0, summary
    verdicts = dict(line.split(" | ")[:2] for line in summary.splitlines() if line.startswith("| "))
    assert {name.removeprefix("| ") for name in verdicts} == {"step", "environment", *chosen}
    left_out = {name.removeprefix("| ") for name, verdict in verdicts.items() if verdict == "left out"}
    assert left_out == {"run", "tests compiled_rung", "tests rates", "tests torch_rung"}
    assert "- no interpreter here has torch" in summary
    assert "nvidia-smi -q -x: 34 values compared, 0 differ" in summary
    assert "pynvml: 23 values compared, 0 differ" in summary
    assert "- no error and no warning at 3 levels" in summary
    assert {"check-deep.json", "check-quick.txt", "record.json.gz", "bench.json"} <= {
        one.name for one in folder.iterdir()
    }
    assert sum(one.stat().st_size for one in folder.iterdir()) < 16 << 20


def test_a_machine_without_a_gpu_is_told_so_in_a_line(tmp_path: Path) -> None:
    machine = Machine(scenario.load(scenario.SICK / "cloud-vm-without-gpu.json"), tmp_path)
    ran = machine.run(["/bin/sh", "-c", f"cd {needs.REPOSITORY} && exec {sys.executable} -m tests.gpu --out /results"])
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == "No NVIDIA GPU: none on the PCI bus, and nvidia-smi lists none. Nothing was run.\n"
    assert not (tmp_path / "results").exists()


def test_the_command_starts_with_the_standard_library_alone(tmp_path: Path) -> None:
    """-S: no installed package is there."""
    argv = [sys.executable, "-S", "-m", "tests.gpu", "--list"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=needs.REPOSITORY, timeout=120)
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == [step.name for step in steps.every()]
