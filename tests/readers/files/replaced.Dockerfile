FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime
RUN pip install -q "vllm==0.30.0"
