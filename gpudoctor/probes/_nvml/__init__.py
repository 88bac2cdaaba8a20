"""NVML's answers in our terms: how the child is talked to, and what each call's answer means."""
