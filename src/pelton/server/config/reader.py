"""Walks a parsed configuration along tables of keys, fills plain objects and collects every error.

The other modules of this package have the tables; ``grammar`` has the syntax.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pelton.server.config.grammar import NOT_SHOWN, Item, Tree
from pelton.server.settings import Settings

Convert = Callable[[Item], Any]
"""Converts an Item to the type of a key; ValueError gives the expected form."""


class Reader:
    """Walks a Tree along tables of keys.

    Keys set attributes of ``target``: the settings, or the part of them that a section fills.
    """

    def __init__(self, tree: Tree, settings: Settings, not_served: frozenset[str]) -> None:
        """`not_served`: paths of nats-server's keys that this server refuses by name."""
        self.tree = tree
        self.settings = settings
        self.target: Any = settings
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.outdated: list[str] = []  # warnings that are errors when the file is checked
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
        """Apply the value of a key; an invalid value becomes an error."""
        try:
            key(self, name, item)
        except ValueError as problem:
            self.problem(item, f"{name}: {problem}", shown=f"{name}: {NOT_SHOWN}")

    def problem(self, item: Item, text: str, shown: str = NOT_SHOWN) -> None:
        """Add an error with file, line and column.

        `shown` replaces a text of an included file; only keys that the server knows are shown from
        there.
        """
        self.problems.append(item.message(text, shown))

    def outdate(self, item: Item, text: str) -> None:
        """Add a warning about an outdated form."""
        self.outdated.append(item.message(text))

    def warn(self, item: Item, text: str) -> None:
        """Add a warning."""
        self.warnings.append(item.message(text))


Key = Callable[[Reader, str, Item], None]
"""Applies the value of a key: reader, the key as written, the value."""
