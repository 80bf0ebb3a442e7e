"""Make the client's half for blocking code from its half for asyncio.

::

    src/pelton/client/aio/keyvalue.py ── without async and await ──► src/pelton/client/sync/keyvalue.py

Threads may share a blocking client, so every public method that waits holds the client's lock, which is
given away while it waits, unless it is ``@unlocked``. The modules that differ in more than that are written
twice: see ``MODULES``.

Usage: ``python tools/gen_sync.py`` writes the files; with ``--check`` it names those that differ, and exits 1.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import libcst as cst

CLIENT = Path(__file__).parents[1] / "src" / "pelton" / "client"
MODULES = (
    "attempts",
    "buckets",
    "connection",
    "consumers",
    "groups",
    "jetstream",
    "keyvalue",
    "management",
    "members",
    "messages",
    "objectstore",
    "objecttransfers",
    "operations",
    "publishing",
    "services",
    "stored",
    "transactions",
    "upkeep",
    "watches",
)
"""The modules that are made; the others of ``client/sync`` are written twice."""
FIXES = ("--fix", "--unsafe-fixes", "-q", "--select", "I,F401,C416,UP028")
"""Sorted imports; and loops that are simple once they do not await."""
HEAD = "# Made of client/aio/{name}.py by tools/gen_sync.py: change that file, and run it again.\n"

NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "AsyncIterator": "Iterator",
    "AsyncIterable": "Iterable",
    "asynccontextmanager": "contextmanager",
    "AsyncExitStack": "ExitStack",
    "enter_async_context": "enter_context",
    "aclosing": "closing",
    "aclose": "close",
    "anext": "next",
    "aiter": "iter",
}
LOCKED = {"__enter__", "__exit__", "__next__"}
"""Special methods that wait."""
IMPORT = "from .locks import locked\n"
_WORDS = re.compile(
    r"\bawait (?=[\w(])(?!(?:an?|the|it)(?:[ ,;:]|\.(?!\w)))|\basync (?=with\b|for\b|def\b)"
)


class _WithoutAwait(cst.CSTTransformer):
    """Leaves the words ``async`` and ``await`` out, and decorates what holds the lock."""

    def __init__(self) -> None:
        super().__init__()
        self._inside: list[bool] = []  # whether the definitions around are classes

    def leave_Await(self, original_node: cst.Await, updated_node: cst.Await) -> cst.BaseExpression:
        inner = updated_node.expression
        if isinstance(inner, cst.Call | cst.Name | cst.Attribute):
            return inner  # parentheses around ``await f()`` say nothing without the word
        return inner.with_changes(
            lpar=[*updated_node.lpar, *inner.lpar], rpar=[*inner.rpar, *updated_node.rpar]
        )

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        return updated_node.with_changes(asynchronous=None)

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
        return updated_node.with_changes(asynchronous=None)

    def leave_CompFor(self, original_node: cst.CompFor, updated_node: cst.CompFor) -> cst.CompFor:
        return updated_node.with_changes(asynchronous=None)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._inside.append(True)

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        self._inside.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._inside.append(False)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        self._inside.pop()
        if updated_node.asynchronous is None:
            return updated_node
        name = updated_node.name.value
        made = updated_node.with_changes(asynchronous=None)
        is_method = bool(self._inside) and self._inside[-1]
        own = {
            each.decorator.value for each in made.decorators if isinstance(each.decorator, cst.Name)
        }
        hidden = name.startswith("_") and name not in LOCKED
        if not is_method or hidden or own & {"locked", "unlocked"}:
            return made
        lock = cst.Decorator(cst.Name("locked"))
        return made.with_changes(decorators=[lock, *made.decorators])

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """``Awaitable[T]`` becomes T."""
        index = updated_node.slice[0].slice
        awaitable = updated_node.value.deep_equals(cst.Name("Awaitable"))
        return index.value if awaitable and isinstance(index, cst.Index) else updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=NAMES.get(updated_node.value, updated_node.value))

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        return updated_node.with_changes(value=_WORDS.sub("", updated_node.value))

    def leave_FormattedStringText(
        self, original_node: cst.FormattedStringText, updated_node: cst.FormattedStringText
    ) -> cst.FormattedStringText:
        return updated_node.with_changes(value=_WORDS.sub("", updated_node.value))


def sync(name: str, text: str) -> str:
    """The text of a module of ``client/sync``, not yet tidied."""
    made = cst.parse_module(text).visit(_WithoutAwait()).code
    if re.search(r"^\s*@locked$", made, re.MULTILINE) and not re.search(
        r"import.*\blocked\b", made
    ):
        future = "from __future__ import annotations\n"
        made = made.replace(future, f"{future}\n{IMPORT}", 1)
    return HEAD.format(name=name) + made


def make(folder: Path) -> None:
    """Write all modules; ruff sorts their imports and breaks their lines."""
    paths = []
    for name in MODULES:
        text = (CLIENT / "aio" / f"{name}.py").read_text("utf-8")
        path = folder / f"{name}.py"
        path.write_text(sync(name, text), "utf-8")
        paths.append(str(path))
    config = ["--config", str(CLIENT.parents[2] / "pyproject.toml")]
    for step in (["check", *FIXES], ["format", "-q"]):
        subprocess.run([sys.executable, "-m", "ruff", *step, *config, *paths], check=True)


def different() -> list[str]:
    """The modules of ``client/sync`` that are not what would be made now."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        return [
            name
            for name in MODULES
            if (Path(folder) / f"{name}.py").read_bytes()
            != (CLIENT / "sync" / f"{name}.py").read_bytes()
        ]


def main() -> None:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description="Make client/sync of client/aio.")
    parser.add_argument(
        "--check", action="store_true", help="only compare; exit 1 for a difference"
    )
    if not parser.parse_args().check:
        make(CLIENT / "sync")
    elif found := different():
        sys.exit(f"made of an older text: {', '.join(found)}; run python tools/gen_sync.py")


if __name__ == "__main__":
    main()
