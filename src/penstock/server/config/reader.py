"""Walks a parsed configuration along tables of keys, fills plain objects and collects every problem.

The modules beside it have the tables; ``grammar`` has the syntax.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.server.config.grammar import NOT_SHOWN, Item, Tree
from penstock.server.settings import Settings

Convert = Callable[[Item], Any]
"""An Item's value as the type a key wants, or ValueError with what was expected."""


class Reader:
    """Walks a Tree along tables of keys. ``target`` is the object that keys set attributes of: the
    settings, or a part of them inside a section that has one of its own.
    """

    def __init__(self, tree: Tree, settings: Settings, not_served: frozenset[str]) -> None:
        """`not_served`: paths of keys that nats-server knows and this server refuses by name."""
        self.tree = tree
        self.settings = settings
        self.target: Any = settings
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.outdated: list[str] = []  # warnings that a check of the file counts as problems
        self._not_served = not_served

    def section(
        self,
        items: dict[str, Item],
        table: "Mapping[str, Key]",
        where: str,
        target: object | None = None,
    ) -> None:
        """Apply each key of a map; `where` is its path with a dot at the end ("" at the top)."""
        before = self.target
        if target is not None:
            self.target = target
        for name, item in items.items():
            key = table.get(name.lower())
            if key is not None:
                self.apply(key, name, item)
            elif not self.tree.is_variable(item):
                if f"{where}{name.lower()}" in self._not_served:
                    text = f'"{name}" is a nats-server setting that this version does not serve'
                    self.problem(item, f"{text}; remove it", shown=f"{text}; remove it")
                else:
                    self.problem(item, f'unknown field "{name}"')
        self.target = before

    def apply(self, key: "Key", name: str, item: Item) -> None:
        """Let a key take its value; what it refuses becomes a problem."""
        try:
            key(self, name, item)
        except ValueError as problem:
            self.problem(item, f"{name}: {problem}", shown=f"{name}: {NOT_SHOWN}")

    def problem(self, item: Item, text: str, shown: str = NOT_SHOWN) -> None:
        """A line for the operator, with file, line and column. `shown`: what is said instead of
        something in an included file; nothing of that but keys that the server knows.
        """
        self.problems.append(item.told(text, shown))

    def outdate(self, item: Item, text: str) -> None:
        """As problem(), of something that is taken as it once was written."""
        self.outdated.append(item.told(text))

    def warn(self, item: Item, text: str) -> None:
        """As problem(), of something that works."""
        self.warnings.append(item.told(text))


Key = Callable[[Reader, str, Item], None]
"""What a key does with its value: reader, the key as written, the value."""
