"""What the probes of the network share: interfaces, their addresses, names, listening ports."""
