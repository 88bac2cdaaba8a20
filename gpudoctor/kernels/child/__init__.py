"""What runs in the child: every measurement by the folder of its rung. Standard library and torch only; Python 3.8.

Our own process imports these files for what they say of themselves, so none imports torch before it is run.
"""
