# syntax=docker/dockerfile:1
# An image of gpudoctor itself: it checks the GPUs and the driver of the host that runs it, and reads what is piped in.
#
# Where it goes: an image of your registry, for hosts and clusters where nothing is to be installed.
#     docker build --file image.Dockerfile --tag gpudoctor .
#     docker run --rm --gpus all --read-only gpudoctor --json
#     docker run --rm --interactive gpudoctor read - <report.txt
#
# It needs no root, no network and no file system that can be written to. From a container the kernel log and the
# packages of the host cannot be seen: what depends on them is told as not judged. Its exit code is gpudoctor's:
#     0  Sound.
#     1  An error was found.
#     2  Misuse.
#     3  No error was found, and something that a verdict needs could not be read.
ARG BASE=python:3.13-slim

FROM ${BASE} AS made
ARG GPUDOCTOR_VERSION=@VERSION@
# An index of your own: --build-arg PIP_INDEX_URL=... ; pip reads it from the environment.
ARG PIP_INDEX_URL
RUN pip install --quiet --no-cache-dir "gpudoctor==${GPUDOCTOR_VERSION}" \
    && gpudoctor pyz --without-tui -o /gpudoctor.pyz

FROM ${BASE}
COPY --from=made /gpudoctor.pyz /usr/local/bin/gpudoctor
# What the NVIDIA Container Toolkit is to bring in: NVML is of `utility`, libcuda of `compute`.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65534:65534
ENTRYPOINT ["python3", "-I", "/usr/local/bin/gpudoctor"]
CMD ["check"]
