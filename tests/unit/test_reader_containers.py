"""How containers were started, and what people say works outside of them."""

from __future__ import annotations

import pytest

from gpudoctor.model.fact import Absent
from gpudoctor.readers.people._outcome import outcome
from tests.unit.reading import told

GPUS, HOST, INSIDE = "container.asks_gpus", "container.host_smi", "container.inside_smi"
AGAIN, OTHERS, WHERE, COUNT = "container.restart_cures", "container.others_work", "host.container", "gpu.count"
MASK = "env.CUDA_VISIBLE_DEVICES"
IN, OUT = "container.inside_cuda", "container.host_cuda"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("$ docker run -it --rm my/image python train.py", {GPUS: False}),
        ("$ docker run -it --rm --gpus all my/image python train.py", {GPUS: True}),
        ("$ docker run -it \\\n    --gpus all \\\n    my/image bash", {GPUS: True}),
        ("$ docker run -it -v $PWD:/work my/image bash", {GPUS: False}),
        ("$ docker run $GPU_OPTIONS my/image bash", {GPUS: None}),
        ("docker run fails with an error", {GPUS: None}),
        ("docker args: -it --shm-size=8g", {GPUS: False}),
        ("docker run flags: --runtime=nvidia -it", {GPUS: True}),
        ("command: apptainer exec train.sif python train.py", {GPUS: False}),
        ("command: apptainer exec --nv train.sif python train.py", {GPUS: True}),
        ("$ docker exec -it web nvidia-smi", {GPUS: None}),
        ("pod spec: no runtimeClassName", {GPUS: False}),
        ("resources: limits cpu 4, no nvidia.com/gpu", {GPUS: False}),
        ("compose file: deploy.resources.reservations.devices not set", {GPUS: False}),
        ("      nvidia.com/gpu: 1", {GPUS: True}),
        ("daemon.json: no nvidia runtime", {GPUS: None}),
        ("after adding the missing --gpus all: works", {GPUS: None}),
        ("docker run --gpus all my/image nvidia-smi: works", {GPUS: None}),
        ("with runtimeClassName: nvidia: test passed", {GPUS: False}),
        ("with runtimeClassName: nvidia: same error", {GPUS: None}),
        ("nvidia-smi on the host: works", {HOST: True, INSIDE: None}),
        ("host nvidia-smi: lists 4x A10", {HOST: True, INSIDE: None}),
        ("nvidia-smi outside the container: ok", {HOST: True, INSIDE: None}),
        ("node nvidia-smi: no devices were found", {HOST: False, INSIDE: None}),
        ("nvidia-smi in the container: command not found", {HOST: None, INSIDE: False}),
        ("nvidia-smi works on the host but not in the container", {HOST: True, INSIDE: False}),
        ("nvidia-smi in pod: file is there but empty", {HOST: None, INSIDE: False}),
        ("the job lost the GPU, host nvidia-smi still lists it", {HOST: True, INSIDE: None}),
        ("nvidia-smi inside the container: no running processes found", {HOST: None, INSIDE: True}),
        ("nvidia-smi: works", {HOST: None, INSIDE: None}),
        ("docker restart: GPU is back", {AGAIN: True}),
        ("restarting the pod fixes it for some days", {AGAIN: True}),
        ("new container: works", {AGAIN: True}),
        ("restarting the container does not help", {AGAIN: False}),
        ("the container restarts every night", {AGAIN: None}),
        ("runs in: Docker container with the nvidia runtime", {WHERE: "docker"}),
        ("running in: a k8s pod, 8 GPUs", {WHERE: "kubernetes"}),
        ("runs in: conda environment", {WHERE: None}),
        ("where: on the Docker host, not in the container", {WHERE: None}),
        ("platform: Docker Desktop", {WHERE: None}),
        ("other containers on this host: see the GPU", {OTHERS: True}),
        ("docker run --gpus all ubuntu nvidia-smi: works", {OTHERS: True}),
        ("docker run ubuntu nvidia-smi: works", {OTHERS: None}),
        ("machine has one RTX 4090", {COUNT: 1}),
        ("this server has 4 GPUs", {COUNT: 4}),
        ("server: 8x H100", {COUNT: 8}),
        ("only one GPU here", {COUNT: 1}),
        ("a single-GPU workstation", {COUNT: 1}),
        ("another machine has two GPUs and works", {COUNT: None}),
        ("the model needs two GPUs", {COUNT: None}),
        ("nvidia-smi -L in the job: GPU 0: A100-SXM4-40GB", {COUNT: 1}),
        ("run script contains: export CUDA_VISIBLE_DEVICES=1", {MASK: "1"}),
        ("train.py: os.environ['CUDA_VISIBLE_DEVICES'] = '2'", {MASK: "2"}),
        ("CUDA_VISIBLE_DEVICES in the job: 5", {MASK: "5"}),
        ("works with: CUDA_VISIBLE_DEVICES=0 python train.py", {MASK: None}),
        ("fixed after: export CUDA_VISIBLE_DEVICES=0", {MASK: None}),
        ("CUDA_VISIBLE_DEVICES inside the ray actor: empty", {MASK: ""}),
        ("os.environ['CUDA_VISIBLE_DEVICES'] in the task: ''", {MASK: ""}),
        ("print(os.environ['CUDA_VISIBLE_DEVICES']) prints an empty string", {MASK: ""}),
        ("CUDA_VISIBLE_DEVICES: not set", {MASK: Absent}),
        ("CUDA_VISIBLE_DEVICES is 0,1", {MASK: None}),
        ("nvidia-smi in the container says CUDA Version 12.6, on the host 12.2", {IN: "12.6", OUT: "12.2"}),
        ("shm on /dev/shm type tmpfs (rw,nosuid,size=65536k)", {"limits.shm_mib": 64}),
        (
            'level=INFO source=gpu.go:392 msg="no compatible GPUs were discovered"',
            {"live.cuda_available": False},
        ),
        ("WARNING: CUDA not available, using CPU", {"live.cuda_available": False}),
        ("No GPU found", {"live.cuda_available": False}),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device is detected", {"live.cuda_available": False}),
    ],
)
def test_what_a_text_tells(text: str, facts: dict[str, object]) -> None:
    """None: the text says nothing of it."""
    assert told(text, *facts) == facts


@pytest.mark.parametrize(
    ("words", "came"),
    [("works fine", True), ("does not work", False), ("no problems", True), ("Tesla T4, 470.57", True), ("8 GB", None)],
)
def test_outcomes(words: str, came: bool | None) -> None:
    assert outcome(words) is came
