"""The PCI bus: configuration space and tree."""
