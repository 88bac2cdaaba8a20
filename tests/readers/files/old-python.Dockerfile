FROM python:3.14-slim
RUN uv pip install --system torch==2.5.1
