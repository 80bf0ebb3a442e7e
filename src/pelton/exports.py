"""Public names that are imported at first use.

::

    with at_first_use(globals()):
        from pelton.client.aio.keyvalue import KeyValue as KeyValue

Type checkers, editors and packagers see an ordinary import. At run time such an import only notes where the name is:
the module is loaded when a program uses the name, so a blocking program never waits for asyncio. From
Python 3.15 on, ``lazy from`` does the same.
"""

from __future__ import annotations

import builtins
import sys
from types import SimpleNamespace

TYPE_CHECKING = False  # of typing, which takes longer to load than all of this
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn


class at_first_use:  # noqa: N801  # used as a statement
    """A ``with`` block whose imports, with absolute names, note what they import for later."""

    def __init__(self, package: dict[str, Any]) -> None:
        """``package``: its ``globals()``, which get ``__all__``, ``__dir__`` and ``__getattr__``."""
        self._package = package
        self._homes: dict[str, str] = {}

    def __enter__(self) -> None:
        """Note the imports of this package; those of other threads go on as always."""
        self._import = builtins.__import__
        builtins.__import__ = self._note  # type: ignore[assignment]  # what it returns is no module

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the package offer the names."""
        builtins.__import__ = self._import
        for name in self._homes:
            del self._package[name]
        self._package["__all__"] = sorted(self._homes)
        self._package["__dir__"] = lambda: sorted({*self._package, *self._homes})
        self._package["__getattr__"] = self._load

    def _note(
        self,
        module: str,
        package: Any = None,
        local: Any = None,
        names: tuple[str, ...] = (),
        level: int = 0,
    ) -> Any:
        if package is not self._package:
            return self._import(module, package, local, names, level)
        self._homes.update(dict.fromkeys(names, module))
        return SimpleNamespace(**dict.fromkeys(names))

    def _load(self, name: str) -> Any:
        if name not in self._homes:
            refuse(self._package["__name__"], name)
        from importlib import import_module

        home = self._homes[name]
        if home == self._package["__name__"]:
            return import_module(f"{home}.{name}")
        found = self._package[name] = getattr(import_module(home), name)
        return found


def refuse(module: str, name: str) -> NoReturn:
    """Raise the error for a name that a module does not have, with the cure where there is one.

    To be called by ``__getattr__``. A ``from`` import gets an ImportError: Python would drop the text of an
    AttributeError, and its own hint comes with 3.12.
    """
    from opcode import opmap

    frame = sys._getframe(2)
    cure = _other_door(module, name)
    if frame.f_code.co_code[frame.f_lasti] != opmap["IMPORT_FROM"]:
        raise AttributeError(f"module {module!r} has no attribute {name!r}{cure}")
    raise ImportError(
        f"cannot import name {name!r} from {module!r}{cure or _similar(module, name)}", name=module
    )


def _other_door(module: str, name: str) -> str:
    """Where the name is exported."""
    from importlib import import_module

    for door in ("pelton", "pelton.sync"):
        if door != module and name in vars(import_module(door)).get("__all__", ()):
            return f": write `from {door} import {name}`"
    return ""


def _similar(module: str, name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, dir(sys.modules[module]), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
