"""The values that all rooms share, each to JSON and back, and what all need; starts no program, prints nothing.

- `fact`, `catalog`, `snapshot`: facts, their declarations, all of them at one moment
- `rule`, `diagnosis`, `plan`, `run`: a rule page, what rules found, steps that cure it, what became of the steps
- `document`: values from and to JSON; `frozen`: how their classes are made; `texts`: every text within a value
- `fleet`, `measurement`, `sample`, `stack`, `difference`: many hosts, kernels' results, GPUs at one moment, a torch
  stack, two diagnoses compared
- `language`: translations; `errors`: exceptions shown to the user; `secrets`: passwords and tokens masked
- `files`: atomic writes, and folders for state and cache; `shipped`: files of the package; `system`: POSIX and Windows
- `pattern`, `log_lines`, `values`, `versions`: regular expressions with a time limit, kernel log lines, values in
  conditions, versions compared
"""
