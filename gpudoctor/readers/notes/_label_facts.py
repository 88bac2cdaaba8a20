"""Which label means which fact. Labels in their one spelling; each fact with the form that its value takes."""

from __future__ import annotations

from collections.abc import Mapping

from gpudoctor.readers._pattern import Pattern, by_phrase, phrases, table, words

_TABLE = """
torch.cuda release: torch cuda | torch version cuda | torch cuda version | pytorch cuda | pytorch cuda version |
    torch built with cuda | cuda version torch | torch cuda build
torch.hip version: torch version hip | torch hip version | torch hip
torch.path path: torch install path | torch path | torch location
torch.archs archs: nvcc architecture flags
    | arch list | torch arch list | torch cuda get arch list | torch archs | supported archs | get arch
    list | compiled archs | gpu arch list
live.arch_list archs: torch cuda get arch list
torch.cudnn_built version: torch compiled cudnn | pytorch compiled cudnn
triton.version version: triton | triton version
triton.wanted version: torch pins triton | triton wanted
live.cuda_available bool: torch cuda is available | torch cuda available | cuda available | cuda is available | is
    cuda available | gpu available | pytorch cuda available | using gpu in script | torch sees gpu
live.device_count int: torch cuda device count | device count | cuda device count
live.cudnn cudnn: torch backends cudnn version | cudnn runtime version | torch cudnn version | cudnn loaded |
    runtime cudnn
live.nccl version: torch cuda nccl version
live.import_error text: import torch error | torch import error | import error
driver.cuda_version release: cuda driver version | driver cuda version | cuda driver
    | driver supports cuda | cuda version nvidia smi |
    nvidia smi cuda version | cuda umd version | max cuda | driver cuda
driver.module_version version: kernel module version | proc driver nvidia version | nvrm version
    | module version | loaded module version |
    loaded kernel module | sys module nvidia version | loaded module
driver.library_version version: dpkg nvidia driver | nvidia driver package version | driver package version |
    library version | nvml library version | user space version | userspace version | user space libraries
    | userspace libraries | driver libraries |
    libraries on disk | driver libraries on disk | libcuda on disk | libnvidia ml on disk | libnvidia ml so
    | libnvidia ml so 1 | libcuda so version | libcuda file
    | libcuda version | libnvidia ml
    version | client version | user space driver
driver.module_disk_version version: modinfo nvidia | modinfo nvidia version | modinfo version nvidia
    | modinfo f version nvidia | modinfo version | modinfo nvidia grep version | nvidia ko version
    | module on disk version | module version on disk | module file version
driver.module_loaded bool: loaded at boot | nvidia module loaded | module loaded | kernel module loaded | nvidia
    module | nvidia ko loaded
driver.module_on_disk bool: nvidia module for running kernel | module on disk | nvidia ko | kmod nvidia for running
    kernel | module built for running kernel | nvidia module for this kernel | kernel module built
driver.nouveau_loaded bool: nouveau loaded | nouveau | nouveau in use | nouveau module
driver.nouveau_blacklisted bool: nouveau blacklisted | nouveau blacklist
driver.headers bool: linux headers for running kernel | linux headers | kernel headers | headers for running kernel
    | headers installed | kernel headers installed | kernel devel
driver.uvm_loaded bool: nvidia uvm loaded | nvidia uvm | uvm loaded | nvidia uvm module
driver.dkms first: dkms status | dkms | dkms state
cuda_driver.init_code int: cuinit | cuinit 0 | cuinit result | cuinit code | cuinit returns | cuinit answers | cuinit
    error
driver.nodes_missing paths: missing device nodes | device nodes missing | missing nodes | nodes missing
driver.nodes_denied paths: nodes without permission in container | nodes without permission | nodes denied | denied
    device nodes
driver.gsp_firmware version: gsp firmware version
driver.peermem_loaded bool: nvidia peermem | nvidia peermem loaded | nv peer mem | peermem loaded
driver.persistenced bool: nvidia persistenced | persistenced running
driver.nvswitch bool: nvswitch | nvswitches | nvswitch present | has nvswitch
driver.fabric_manager_version version: fabricmanager version | fabric manager version | nvidia fabricmanager version
    | nvidia fabricmanager package | fabricmanager package | fabric manager package
host.secure_boot bool: secure boot | secureboot | secure boot state | mokutil sb state
host.kernel_command_line text: kernel cmdline | kernel command line | cmdline | proc cmdline
host.arch arch: arch | architecture | machine arch | cpu architecture | uname m
host.glibc version: glibc | glibc version | libc | ldd version
host.virtual_machine first: hypervisor | virtualization | systemd detect virt
python.version version: python | python version | python ver | interpreter | py version | python 版本
python.path first: python path | python executable | which python | sys executable
cuda.toolkit_version release: cuda toolkit | cuda toolkit version | toolkit | cuda | cuda version | local cuda
    version | system cuda | cuda 版本 | installed cuda | cuda runtime | cuda sdk
cuda.nvcc_version release: nvcc | nvcc version | nvcc release | system cuda nvcc | cuda nvcc | nvcc cuda version
cuda.nvcc first: nvcc path | which nvcc
cuda.ptxas_version version: ptxas version | ptxas
cuda.ptxas first: ptxas used | ptxas path
cuda.home_has_nvcc bool: cuda home has nvcc
cuda.host_compiler_version version: gcc | g++ | gcc version | gcc compiler version if compiling from source | gcc
    compiler version | c++ compiler | host compiler | c compiler | g++ version
tf.version version: tensorflow | tensorflow version | tf version | tf | tensorflow gpu
tf.built_with_cuda bool: tf built with cuda | tensorflow built with cuda | tf test is built with cuda | is built
    with cuda | built with cuda
tf.cuda release: tf cuda version | tf compiled cuda | tensorflow cuda
tf.cudnn version: tf compiled cudnn | tf cudnn version | tensorflow cudnn
jax.version version: jax | jax version
jax.jaxlib version: jaxlib | jaxlib version
jax.plugin version: jax cuda12 plugin | jax cuda plugin | jax cuda13 plugin | jax plugin
nccl.version version: nccl | nccl version | nccl ver
nccl.interface first: nccl interface | nccl socket interface
nccl.world_size int: world size
pci.nvidia_count int: nvidia devices on the bus | lspci nvidia devices | nvidia pci devices | nvidia gpus in lspci
gpu.count int: gpu count | number of gpus | num gpus | gpus visible | gpu number | n gpus | cuda gpus | attached
    gpus | gpus per node | gpus on node | gpus in node | gpus on host | gpus in machine | gpus installed |
    installed gpus
limits.shm_mib mib: shm | shm size | dev shm | dev shm size | shared memory dev shm size | shared memory size |
    shared memory | size of dev shm
limits.shm_free_mib mib: shm free | dev shm free
limits.memlock_kib memlock: memlock | ulimit l | max locked memory | memlock limit | locked memory | ulimit memlock
limits.open_files int: ulimit n | open files | nofile
nvml.state text: nvml state
nvml.message text: nvml message | nvidia smi error
"""
_COLUMNS = """
compute_capability release: compute capability | compute cap | cuda capability | gpu compute capability | sm |
    capability | cuda compute capability
memory_mib mib: gpu memory | vram | gpu memory total | memory total | gpu total | gpu ram | total gpu memory
memory_used_mib mib: gpu memory used | memory used | memory used before start | vram used
compute_mode mode: compute mode | gpu compute mode | compute m
mig bool: mig | mig mode | mig enabled | mig mode current
ecc_uncorrected int: ecc uncorrected | uncorrectable ecc errors | ecc errors uncorrected | volatile uncorr ecc |
    uncorrected ecc errors | volatile uncorrectable ecc errors | aggregate uncorrectable ecc
remap_pending bool: remap pending | row remap pending | remapped rows pending | pending row remap | remapping pending
remap_failed bool: remap failed | row remap failed | remap failure | remapping failure occurred | row remap failure
    | remapped rows failure
recovery_action lower: gpu recovery action | recovery action | nvml recovery action
temperature_c int: gpu temperature | temperature | gpu temp | temperature current | gpu current temp | temp |
    temperature gpu
temperature_max_c int: gpu max operating temp
temperature_slowdown_c int: gpu slowdown temp
throttle_reasons throttling: throttle reasons | clocks throttle reasons | clocks event reasons | throttle reason |
    clocks throttle reasons active | active throttle reasons | throttling
link_generation int: pcie link gen current | pcie link generation current | pcie gen current | pcie generation
    current | current pcie gen | link gen current | pcie gen | pcie link gen
link_generation_max int: pcie link gen max | pcie link generation max | pcie gen max | pcie generation max | max
    pcie gen | link gen max
link_width int: pcie link width current | pcie width current | current pcie width | link width current | pcie width
    | pcie lanes | pcie link width
link_width_max int: pcie link width max | pcie width max | max pcie width | link width max
utilization int: gpu util | gpu utilization | utilization | gpu usage | utilization gpu
address address: gpu bus id | bus id | pci bus id | pci address
"""
SYSTEMS = frozenset(
    phrases(
        """operating system | system | os version | os platform and distribution | distribution | distro | platform
        | linux distribution | os name | host os | linux distro | 操作系统 | 系统"""
    )
)
"""Labels whose value names the operating system."""
VARIABLES = words(
    """
    CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH LD_PRELOAD NVIDIA_VISIBLE_DEVICES
    NVIDIA_DRIVER_CAPABILITIES NVIDIA_REQUIRE_CUDA NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME NCCL_IB_DISABLE
    NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_IB_HCA NCCL_TOPO_FILE NCCL_DEBUG TORCH_CUDA_ARCH_LIST
    PYTORCH_CUDA_ALLOC_CONF PYTHONPATH CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MPS_PIPE_DIRECTORY
    MASTER_ADDR MASTER_PORT
    """
)
"""Variables that people name as a label in any spelling."""


def _facts_by_label(text: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """(fact, form) pairs by label, from lines of ``fact form: label | label``."""
    out: dict[str, tuple[tuple[str, str], ...]] = {}
    for head, labels in table(text):
        name, _, form = head.rpartition(" ")
        for label in labels:
            out[label] = (*out.get(label, ()), (name, form))
    return out


FACTS_OF: Mapping[str, tuple[tuple[str, str], ...]] = _facts_by_label(_TABLE)
COLUMNS: Mapping[str, tuple[str, str]] = {label: entries[0] for label, entries in _facts_by_label(_COLUMNS).items()}

SPECIAL: Mapping[str, str] = by_phrase(
    """
gpus: gpu | gpus | gpu name | gpu model | gpu models | gpu type | gpu s | graphics card | gpu model and memory
    | gpu hardware | card | video card | nvidia gpu | gpu device | device name | gpu name s
    | device manager | display adapters | new gpu | new card | gpu here | cards | graphics cards | 显卡 | 显卡型号
kernel: kernel | kernel version | linux kernel | uname r | kernel release | running kernel | current kernel
    | booted kernel
wsl: wsl version | wsl | default version
libcuda: libcuda mapped | libcuda | libcuda path | libcuda loaded | libcuda so 1 | libcuda resolved
container: container | orchestrator | container runtime | inside container | in container
fabric manager: fabricmanager state | fabric manager | nvidia fabricmanager | fabric manager state | fabricmanager
    | fabricmanager installed | fabric manager status | fabricmanager status | nvidia fabricmanager service
    | fabricmanager service
module kind: module kind | kernel module | kernel modules | kernel module kind | driver kind | driver type
    | driver flavor | driver flavour | module license | kernel module type | driver variant | driver fork
    | module flavour | module flavor | modinfo nvidia license | modinfo license | nvidia module license
    | modinfo nvidia grep license | kernel module license | nvidia ko license
driver: driver | nvidia driver | gpu driver | driver version | nvidia driver version | gpu driver version
    | nvidia driver ver | display driver | graphics driver | windows driver version | windows driver
    | driver installed | nvidia driver installed | driver packages | nvidia driver packages
    | nvidia driver package | driver package | nvidia packages
    | nvidia package | driver package installed | driver branch | 驱动版本 | 驱动 | nvidia 驱动 | 显卡驱动
cuda and cudnn: cuda cudnn version | cuda cudnn | cuda and cudnn version
cudnn: cudnn | cudnn runtime | system cudnn
nvjitlink: nvjitlink | libnvjitlink
torch: pytorch version gpu | torch | pytorch | torch version | pytorch build version | torch version installed
    | torch build | pytorch build | torch wheel | pytorch 版本 | torch 版本
machine: machine | board | node type | instance type | hardware | cpu and gpu | processor | cpu
lspci: lspci | lspci nvidia | lspci grep nvidia | lspci grep i nvidia | lspci display | lspci vga | lspci gpu
    | lspci shows | lspci output | lspci grep i vga | lspci grep vga
framework: framework
image: image | docker image | container image
nvidia smi: nvidia smi | nvidia smi version
processes: nvidia smi processes | gpu processes
"""
)
"""Labels whose value says several things, and which answer of `labels` takes it apart."""

_FILLERS = words(
    """the a an of my our your this that is was current currently reported shown status here itself actual
    exact"""
)
_ON_THE_HOST = (
    " on the host",
    " on the node",
    " on node",
    " on the machine",
    " on this machine",
    " on the server",
    " on host",
    " of the host",
    " of host",
    " host",
    " in use",
    " used",
    " in windows",
)
_DRIVERS = ("driver", "nvidia driver", "gpu driver", "driver version", "nvidia driver version", "graphics driver")
_OTHER_DRIVERS = words(
    """before old previous working good last next recommended required minimum needed other newer older target latest
    cuda kernel storage network amd intel xe i915 odbc jdbc chrome web usb wifi audio legacy needs wants supported"""
)
_COMMAND = Pattern(r"^(?:(?:output|result|content)s? of )?(?:sudo )?(?:cat |head |echo |type )?(?=\w)")
"""The command that shows a file, in front of the file's name."""
_KNOWN = frozenset((*FACTS_OF, *COLUMNS, *SPECIAL, *SYSTEMS))
_SORTED: dict[tuple[str, ...], str] = {}
for _label in sorted(_KNOWN, reverse=True):
    if " " in _label:
        _SORTED[tuple(sorted(_label.split()))] = _label


def canonical_label(label: str) -> str:
    """The tables' label for the same thing, word order and fillers ignored; else `label`, less a leading ``cat``."""
    if label in _KNOWN:
        return label
    label = _COMMAND.compiled.sub("", label)
    parts = [word for word in label.split() if word not in _FILLERS]
    name = label
    for tail in _ON_THE_HOST:
        if name.endswith(tail) and name.removesuffix(tail) in _DRIVERS:
            name = name.removesuffix(tail)
    if name in _DRIVERS:
        return "driver version"
    name = " ".join(parts)
    if parts[-1:] in (["driver"], ["drivers"]) and len(parts) <= 3 and not _OTHER_DRIVERS & set(parts):
        return "driver version"
    return name if name in _KNOWN else _SORTED.get(tuple(sorted(parts)), label)
