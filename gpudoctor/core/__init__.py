"""The nouns (fact, snapshot, rule, diagnosis, plan), each to JSON and back, and plumbing: languages, files, errors."""
