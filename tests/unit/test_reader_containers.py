"""How containers were started, and what people say works outside of them."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Known
from gpudoctor.readers import read_text
from gpudoctor.readers.people._outcome import outcome


def value(report: str, name: str) -> object:
    fact = read_text(report).facts.get(name)
    return fact.value if isinstance(fact, Known) else None


@pytest.mark.parametrize(
    ("report", "asks"),
    [
        ("$ docker run -it --rm my/image python train.py", False),
        ("$ docker run -it --rm --gpus all my/image python train.py", True),
        ("$ docker run -it \\\n    --gpus all \\\n    my/image bash", True),
        ("$ docker run -it -v $PWD:/work my/image bash", False),
        ("$ docker run $GPU_OPTIONS my/image bash", None),
        ("docker run fails with an error", None),
        ("docker args: -it --shm-size=8g", False),
        ("docker run flags: --runtime=nvidia -it", True),
        ("command: apptainer exec train.sif python train.py", False),
        ("command: apptainer exec --nv train.sif python train.py", True),
        ("$ docker exec -it web nvidia-smi", None),
        ("pod spec: no runtimeClassName", False),
        ("resources: limits cpu 4, no nvidia.com/gpu", False),
        ("compose file: deploy.resources.reservations.devices not set", False),
        ("      nvidia.com/gpu: 1", True),
        ("daemon.json: no nvidia runtime", None),
        ("after adding the missing --gpus all: works", None),
        ("docker run --gpus all my/image nvidia-smi: works", None),
        ("with runtimeClassName: nvidia: test passed", False),
        ("with runtimeClassName: nvidia: same error", None),
    ],
)
def test_whether_it_asks_for_gpus(report: str, asks: bool | None) -> None:
    assert value(report, "container.asks_gpus") is asks


@pytest.mark.parametrize(
    ("line", "host", "inside"),
    [
        ("nvidia-smi on the host: works", True, None),
        ("host nvidia-smi: lists 4x A10", True, None),
        ("nvidia-smi outside the container: ok", True, None),
        ("node nvidia-smi: no devices were found", False, None),
        ("nvidia-smi in the container: command not found", None, False),
        ("nvidia-smi works on the host but not in the container", True, False),
        ("nvidia-smi in pod: file is there but empty", None, False),
        ("the job lost the GPU, host nvidia-smi still lists it", True, None),
        ("nvidia-smi inside the container: no running processes found", None, True),
        ("nvidia-smi: works", None, None),
    ],
)
def test_where_nvidia_smi_works(line: str, host: bool | None, inside: bool | None) -> None:
    assert value(line, "container.host_smi") is host
    assert value(line, "container.inside_smi") is inside


@pytest.mark.parametrize(
    ("line", "cured"),
    [
        ("docker restart: GPU is back", True),
        ("restarting the pod fixes it for some days", True),
        ("new container: works", True),
        ("restarting the container does not help", False),
        ("the container restarts every night", None),
    ],
)
def test_whether_starting_it_again_helps(line: str, cured: bool | None) -> None:
    assert value(line, "container.restart_cures") is cured


@pytest.mark.parametrize(
    ("line", "container"),
    [
        ("runs in: Docker container with the nvidia runtime", "docker"),
        ("running in: a k8s pod, 8 GPUs", "kubernetes"),
        ("runs in: conda environment", None),
        ("where: on the Docker host, not in the container", None),
        ("platform: Docker Desktop", None),
    ],
)
def test_where_it_runs(line: str, container: str | None) -> None:
    assert value(line, "host.container") == container


def test_another_container_that_works() -> None:
    assert value("other containers on this host: see the GPU", "container.others_work") is True
    assert value("docker run --gpus all ubuntu nvidia-smi: works", "container.others_work") is True
    assert value("docker run ubuntu nvidia-smi: works", "container.others_work") is None


@pytest.mark.parametrize(
    ("words", "came"),
    [("works fine", True), ("does not work", False), ("no problems", True), ("Tesla T4, 470.57", True), ("8 GB", None)],
)
def test_outcomes(words: str, came: bool | None) -> None:
    assert outcome(words) is came


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("machine has one RTX 4090", 1),
        ("this server has 4 GPUs", 4),
        ("server: 8x H100", 8),
        ("only one GPU here", 1),
        ("a single-GPU workstation", 1),
        ("another machine has two GPUs and works", None),
        ("the model needs two GPUs", None),
        ("nvidia-smi -L in the job: GPU 0: A100-SXM4-40GB", 1),
    ],
)
def test_how_many_gpus(line: str, count: int | None) -> None:
    assert value(line, "gpu.count") == count


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("run script contains: export CUDA_VISIBLE_DEVICES=1", "1"),
        ("train.py: os.environ['CUDA_VISIBLE_DEVICES'] = '2'", "2"),
        ("CUDA_VISIBLE_DEVICES in the job: 5", "5"),
        ("works with: CUDA_VISIBLE_DEVICES=0 python train.py", None),
        ("fixed after: export CUDA_VISIBLE_DEVICES=0", None),
    ],
)
def test_settings_in_prose(line: str, setting: str | None) -> None:
    assert value(line, "env.CUDA_VISIBLE_DEVICES") == setting


@pytest.mark.parametrize(
    ("line", "value_read"),
    [
        ("CUDA_VISIBLE_DEVICES inside the ray actor: empty", ""),
        ("os.environ['CUDA_VISIBLE_DEVICES'] in the task: ''", ""),
        ("print(os.environ['CUDA_VISIBLE_DEVICES']) prints an empty string", ""),
        ("CUDA_VISIBLE_DEVICES: not set", None),
        ("CUDA_VISIBLE_DEVICES is 0,1", None),
    ],
)
def test_a_variable_that_is_set_and_empty(line: str, value_read: str | None) -> None:
    assert value(line, "env.CUDA_VISIBLE_DEVICES") == value_read


def test_the_newest_cuda_inside_and_outside() -> None:
    line = "nvidia-smi in the container says CUDA Version 12.6, on the host 12.2 with the same driver"
    assert value(line, "container.inside_cuda") == "12.6"
    assert value(line, "container.host_cuda") == "12.2"


def test_the_size_that_mount_shows() -> None:
    assert value("shm on /dev/shm type tmpfs (rw,nosuid,size=65536k)", "limits.shm_mib") == 64


@pytest.mark.parametrize(
    "line",
    [
        'level=INFO source=gpu.go:392 msg="no compatible GPUs were discovered"',
        "WARNING: CUDA not available, using CPU",
        "No GPU found",
        "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
    ],
)
def test_programs_that_see_no_gpu(line: str) -> None:
    assert value(line, "live.cuda_available") is False
