"""What programs print: a module per program or family of programs, named after it: nvidia-smi, collect_env, DCGM, NCCL.

Kernel logs are read in `kernel`, pip and conda lists in `packages`, messages of torch in `torch_messages` and of other
frameworks in `frameworks_log`, errors at a job's end in `launchers` and `out_of_memory`.
"""
