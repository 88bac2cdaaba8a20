"""Triton and torch.compile: kernels that are compiled on this machine."""
