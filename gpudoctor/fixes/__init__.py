"""From findings to what is done about them: plan, apply, verify, undo; and what to install (``setup``).

- `cures`, `plan`: the fixes of each finding; one plan for all; `effects`: what a plan would change, foreseen
- `apply`, `undo`: run a plan, take a run back; `steps`: one step run, and what must hold before
- `permissions`: who may run which step; `backup`: the environment before a run; `records`: journals and locks of runs
- `solver`: torch stack, driver and toolkit for a machine; `manifests`: cures of a manifest as lines to change
"""
