"""The statements of Python source, for tests of the house's rules.

Functions, classes and imports are statements: who looks for these need not visit the expressions, which are
nine of ten nodes of a tree.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(
    tree: ast.AST, leave_out: Callable[[ast.AST], bool] = lambda node: False
) -> Iterator[ast.AST]:
    """All statements below a node, in the order of the source; not those that are left out, nor what is in them."""
    left = [tree]
    while left:
        node = left.pop()
        if leave_out(node):
            continue
        if node is not tree:
            yield node
        inner = [each for block in BLOCKS for each in getattr(node, block, ())]
        left += reversed(inner)
