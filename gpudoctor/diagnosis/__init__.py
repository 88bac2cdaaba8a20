"""Facts in, Diagnosis out: rulebook, tables, judge, what is expected of a machine, its history, comparison."""
