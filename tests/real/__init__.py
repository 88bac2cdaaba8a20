"""NVIDIA's real driver libraries under the unmodified program, on a machine whose kernel has no module for them."""
