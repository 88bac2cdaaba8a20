"""What each command does: one call, one view, an exit code. `gpudoctor.cli` parses, calls one of these, and catches."""
