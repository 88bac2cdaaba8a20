"""NCCL between the GPUs of this node."""
