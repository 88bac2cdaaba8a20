"""NVML's answers in our terms.

`client` asks NVML in child processes within time limits, `columns` and `groups` make facts of the answers, `values`
decodes numbers, structs and bit masks.
"""
