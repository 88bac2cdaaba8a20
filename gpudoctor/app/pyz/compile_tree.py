"""Compile every module under the folder TREE, run as ``python compile_tree.py TREE GOAL`` by any Python from 3.10 on.

The byte code lies where it is searched for in a zip file: ``GOAL/gpudoctor/app/cli.pyc``. It is never compared with its
source, and knows no folder of the machine that made it.
"""

import os
import py_compile
import sys

ALIKE = py_compile.PycInvalidationMode.UNCHECKED_HASH


def compile_tree(tree: str, goal: str) -> None:
    """Compile every ``.py`` file below `tree` into `goal`; raises `py_compile.PyCompileError` for invalid Python."""
    for folder, _, names in os.walk(tree):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                inside = os.path.relpath(path, tree)
                place = os.path.join(goal, inside + "c")
                py_compile.compile(path, place, inside, doraise=True, invalidation_mode=ALIKE)


if __name__ == "__main__":
    compile_tree(sys.argv[1], sys.argv[2])
