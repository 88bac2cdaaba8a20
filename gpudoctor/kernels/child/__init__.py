"""What runs in the child: every kernel in the folder of its rung. Standard library and torch only; Python 3.8.

- `driver`: PTX through libcuda, without torch; `eager`: torch's operations as they are called
- `compiled`: Triton and torch.compile; `collective`: NCCL and Gloo; `training`: what training steps need
- `jax`, `tensorflow`: whether these see the GPU

Our own process imports these files for what they say of themselves, so none imports torch before it is run.
"""
