FROM pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime
ENV CUDA_VISIBLE_DEVICES=""
