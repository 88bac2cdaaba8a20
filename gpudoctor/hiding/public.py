"""Words that name nobody: accounts of every system, folders of every disk, hosts that all the world uses."""

from __future__ import annotations

import re
from functools import lru_cache

_ACCOUNTS = (
    "root user users home admin administrator ubuntu debian fedora centos rocky alma almalinux suse opensuse arch"
    " linux redhat rhel docker podman container containers host localhost node nodes worker master server machine"
    " nvidia cuda torch pytorch gpu gpus driver python python3 conda mamba mambauser default system local test"
    " bench build data shared public runner jenkins vscode ec2-user opc jovyan azureuser nobody daemon www-data"
    " sys games mail man backup syslog sshd ssh git slurm munge mpi mpiuser ray kube kubelet gitlab-runner dev"
    " developer guest demo example me you name username hostname someone anonymous all users.slice app workspace"
    " site-packages none null unknown self this that true false hidden vagrant pi core ci cloud-user google amazon"
    " macbook imac laptop desktop box"
    " azure aws gcp opt usr var lib lib64 bin etc tmp src venv env envs linuxbrew"
)
ACCOUNTS = frozenset(_ACCOUNTS.split())
"""Names that say nothing about anybody, and may be words of any path."""

_FOLDERS = (
    "models model datasets dataset checkpoints ckpt weights logs log outputs output results runs cache caches tmp"
    " temp apps app software sw tools opt lib lib64 bin include share etc var usr src code repos repo spack"
    " modules easybuild containers images sif venv venvs .venv env envs conda anaconda3 miniconda3 miniforge3"
    " mambaforge micromamba python site-packages dist-packages cuda nvidia nccl torch pytorch huggingface hub jobs"
    " batch job slurm spool docker containerd kubelet overlay2 overlay lost+found wheels packages pkgs build builds"
    " install installs ray triton nsight dev local imagenet coco laion c4 wikitext"
)
FOLDERS = frozenset(_FOLDERS.split())
"""Folders beside those of users, below which no user's is looked for."""

_SHELVES = (
    "home homes user users people group groups team teams staff scratch shared public project projects data work"
    " lustre gpfs nfs storage export mnt fsx beegfs disk disk1 disk2 vol vol1 ssd nvme raid c d e"
)
SHELVES = frozenset(_SHELVES.split())
"""Folders that hold the folders of users, or more of such."""

_DOMAINS = (
    "anaconda.com anaconda.org apache.org archlinux.org arxiv.org cloudflare.com cncf.io conda.io debian.org docker.com"
    " docker.io fedoraproject.org gcr.io ghcr.io github.com github.io githubusercontent.com gitlab.com gnu.org"
    " golang.org google.com googleapis.com googlesource.com hf.co huggingface.co intel.com jax.dev json-schema.org"
    " k8s.io kernel.org kubernetes.io launchpad.net man7.org mcr.microsoft.com microsoft.com nixos.org nvcr.io"
    " nvidia.cn nvidia.com open-mpi.org openfabrics.org opensuse.org pepy.tech pkg.dev pypa.io pypi.org"
    " pythonhosted.org python.org pytorch.org quay.io readthedocs.io readthedocs.org redhat.com redhat.io"
    " rockylinux.org"
    " rpmfusion.org schedmd.com stackexchange.com stackoverflow.com suse.com tensorflow.org ubuntu.com vllm.ai w3.org"
    " wandb.ai wandb.com wikipedia.org"
)
DOMAINS = frozenset(_DOMAINS.split())
"""Sites that are the same for everybody, with all hosts below them."""

SUFFIXES = ("svc.cluster.local", "cluster.local", "localdomain", "local", "internal", "lan", "test", "invalid")
"""Ends of names that every private network has; what stands before them is hidden, they stay."""

_CLOUD_STORES = ("s3.amazonaws.com", "storage.googleapis.com")
_FILE = re.compile(
    r"\.(?:py|pyc|pyi|so|txt|log|json|ya?ml|toml|cfg|conf|ini|sh|csv|tsv|pt|pth|bin|whl|md|html?|tar|t?gz|zip|zst|xz"
    r"|deb|rpm|run|sif|sqsh|err|out|c|cc|cpp|cu|cuh|h|hpp|ko|service|socket|slice|scope|mount|safetensors|parquet"
    r"|d|list|sources|repo|lock|dll|exe|lib|a|o|js|ts|rs|go|java|ipynb|pem|key|pub|svg|png|jpe?g|pdf|xml)(?:\.\d+)*\Z",
    re.IGNORECASE,
)


def is_file(name: str) -> bool:
    """Whether it is a file by its ending, and no name of a user or host."""
    return bool(_FILE.search(name))


def is_public_host(name: str) -> bool:
    """Whether it is a site that is the same for everybody."""
    labels = name.lower().rstrip(".").split(".")
    if ".".join(labels[-3:]) in _CLOUD_STORES:  # whose first label is somebody's bucket
        return len(labels) == 3
    return any(".".join(labels[place:]) in DOMAINS for place in range(len(labels)))


@lru_cache(maxsize=1)
def vocabulary() -> frozenset[str]:
    """Every word of our own pages, facts and tables: a name among them is hidden only where a name must stand."""
    from gpudoctor import rulebook
    from gpudoctor.catalog import catalog

    found: set[str] = set(ACCOUNTS | FOLDERS | SHELVES)
    book = rulebook.load()
    for rule in (*book.rules, *book.cluster):
        said = [rule.id, rule.title, rule.finding, rule.why, rule.misses, rule.confirm, rule.layer]
        for fix in rule.fixes:
            said += [fix.title, fix.undo, *(word for step in fix.steps for word in (*step.argv, step.text))]
        for text in said:
            found.update(_WORD.findall(text.lower()))
    for spec in catalog().specs.values():
        found.update(_WORD.findall(f"{spec.name} {spec.about.partition(':')[0]} {spec.unit}".lower()))
    return frozenset(found)


_WORD = re.compile(r"[^\W_]+")
