"""What each command does: one call, one view, an exit code. `gpudoctor.app.cli` calls one of these, and catches."""
