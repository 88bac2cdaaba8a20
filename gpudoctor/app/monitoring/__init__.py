"""``gpudoctor run``: monitors a command while it runs, and makes one diagnosis of all that was seen at its end."""
