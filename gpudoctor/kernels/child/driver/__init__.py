"""The driver alone: small PTX programs through libcuda, no toolkit and no torch."""
