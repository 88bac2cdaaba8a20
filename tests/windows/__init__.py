"""gpudoctor on Windows: an unmodified CPython for Windows runs it under Wine, over a simulated driver and registry."""
