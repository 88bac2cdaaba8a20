"""The program: what the user types and what happens then.

- `cli`: argv to exit code; `arguments`: the options of each command; `commands`: what each command does
- `pipeline`: this machine to a Diagnosis; `reading`: a text or file to a Diagnosis
- `api`, `in_training`: the Python interface (``import gpudoctor``), and its part within a training script
- `bench`, `soak`: which kernels are run, and for how long; `monitoring`: ``gpudoctor run``
- `interactive`, `live_gpus`, `live_job`: what the terminal interface calls; `serving`: the interface in a browser
- `output`: where a report goes, exit codes; `redaction`: ``--share``
- `mcp`: the server for assistants; `pyz`: the program as one file; `demos`: recorded machines
- `docs`, `man`, `completion`, `recipes`: files that ship
"""
