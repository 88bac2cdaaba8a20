"""Ray Train: the training starts only when all workers' machines are fit for it.

Where it goes: the first line of your own training function; gpudoctor has to be in the workers' environment
(``runtime_env={"pip": ["gpudoctor"]}``, or in the image). Start this file on any machine of the Ray cluster.

Each worker checks its machine, then all workers the network between them. Unless it is a go, every worker raises
`gpudoctor.NoGoError`, the run ends before the first step, and one worker's log has the report. The driver gives all
workers the same random GPUDOCTOR_JOB_KEY, by which they authenticate each other's messages.
"""

from __future__ import annotations

import os
import secrets

import ray.train
from ray.train.torch import TorchTrainer

import gpudoctor


def train(config: dict[str, str]) -> None:
    """Training function of each worker; Ray has set RANK, WORLD_SIZE and MASTER_ADDR. Raises `NoGoError` unless go."""
    os.environ["GPUDOCTOR_JOB_KEY"] = config["job_key"]
    gpudoctor.preflight()
    ray.train.report({"loss": 0.0})  # the training


if __name__ == "__main__":
    trainer = TorchTrainer(
        train,
        train_loop_config={"job_key": secrets.token_hex(16)},
        scaling_config=ray.train.ScalingConfig(num_workers=16, use_gpu=True),
    )
    trainer.fit()
