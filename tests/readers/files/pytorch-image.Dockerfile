FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
RUN <<EOF
set -e
pip install torchvision accelerate
EOF
RUN ["pip", "install", "datasets"]
