"""The host: firmware, folders that fill, processes that are stuck."""
