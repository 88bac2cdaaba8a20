"""How containers were started."""

from __future__ import annotations

import pytest

from gpudoctor.core.fact import Absent
from tests.readers.reading import told

GPUS, WHERE, COUNT = "container.asks_gpus", "host.container", "gpu.count"
MASK = "env.CUDA_VISIBLE_DEVICES"


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
        ("      nvidia.com/gpu: 1", {GPUS: True}),
        ("daemon.json: no nvidia runtime", {GPUS: None}),
        ("after adding the missing --gpus all: works", {GPUS: None}),
        ("with runtimeClassName: nvidia: same error", {GPUS: None}),
        ("runs in: Docker container with the nvidia runtime", {WHERE: "docker"}),
        ("running in: a k8s pod, 8 GPUs", {WHERE: "kubernetes"}),
        ("runs in: conda environment", {WHERE: None}),
        ("where: on the Docker host, not in the container", {WHERE: None}),
        ("platform: Docker Desktop", {WHERE: None}),
        ("another machine has two GPUs and works", {COUNT: None}),
        ("the model needs two GPUs", {COUNT: None}),
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
        ("shm on /dev/shm type tmpfs (rw,nosuid,size=65536k)", {"limits.shm_mib": 64}),
        ('level=INFO source=gpu.go:392 msg="no compatible GPUs were discovered"', {"live.cuda_available": False}),
        ("WARNING: CUDA not available, using CPU", {"live.cuda_available": False}),
        ("No GPU found", {"live.cuda_available": False}),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device is detected", {"live.cuda_available": False}),
    ],
)
def test_what_a_text_tells(text: str, facts: dict[str, object]) -> None:
    """None: the text says nothing of it."""
    assert told(text, *facts) == facts
