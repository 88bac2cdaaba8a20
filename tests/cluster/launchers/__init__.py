"""Real launchers on this one machine: Slurm, torchrun and mpirun over hosts that are namespaces with simulated GPUs."""
