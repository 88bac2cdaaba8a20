"""The driver on the disk and in the kernel: files, device nodes, DKMS, modprobe, daemons."""
