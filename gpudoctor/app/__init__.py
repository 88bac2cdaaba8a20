"""The program: command line, commands, their arguments, the interface's work, recipes, documents."""
