# syntax=docker/dockerfile:1
ARG CUDA=12.4.1

FROM python:3.12-slim AS wheels
RUN pip wheel --no-deps numpy

FROM nvidia/cuda:${CUDA}-cudnn-runtime-ubuntu22.04 AS base
ENV DEBIAN_FRONTEND=noninteractive \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip \
    # kept small
    && rm -rf /var/lib/apt/lists/*

FROM base
ARG TORCH=2.6.0
COPY --from=wheels /wheels /wheels
RUN --mount=type=cache,target=/var/cache/pip \
    pip3 install --no-cache-dir \
        torch==${TORCH} \
        torchvision==0.21.0 \
        --index-url https://download.pytorch.org/whl/cu124
CMD ["python3", "train.py"]
