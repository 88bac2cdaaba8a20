"""What people write of a machine in their own words: labels, lists, sentences; a module per subject."""
