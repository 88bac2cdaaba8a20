"""What people note of a machine in a form of their own: labels with values, commands, figures; not sentences.

`labels` reads ``label: value`` lines (`_label_facts`: which label is which fact), the others one kind of note each;
`guesses` has what nothing states.
"""
