"""What programs print: nvidia-smi, collect_env, dmesg, pip, NCCL, compilers; a module per program, mostly."""
