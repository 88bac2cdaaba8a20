"""``gpudoctor run``: monitors a command while it runs, and makes one diagnosis at its end.

- `watching`: resources while it runs, and whether it hangs; `gpus`: the GPUs' part of that
- `ranks`: the job's ranks on this host agree who failed first and who prints
- `run_diagnosis`: the diagnosis at the end
"""
