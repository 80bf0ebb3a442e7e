"""The two halves of the client: blocking code has what asyncio has, and shows the methods themselves."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

import pelton
import pelton.sync
from tools.gen_sync import CLIENT, MODULES, different, sync

if TYPE_CHECKING:
    from collections.abc import Iterator

BY_HAND = {
    *("__init__", "backend", "columns", "locks", "sending", "subscription", "transport", "workers"),
}
"""Modules of both halves that are written twice."""
ASYNCIO_ONLY = {"waiting"}
BLOCKING_ONLY = {
    *("backup", "gets", "rows", "sharing"),
}
ONE_HALF_ONLY = {
    "Client": {"detach", "wait_until"},
    "JetStream": {"column_reader", "read_columns"},
}
"""Calls that one half has alone."""
DIFFERENT = {
    # in blocking code no thread waits for a callback's messages
    "Client.subscribe": ("callback: 'Callback | None' = None, ", ""),
    # in asyncio each publish may be awaited
    "Publisher.publish": ("-> 'asyncio.Future[PubAck]'", "-> 'None'"),
}
"""Calls whose signatures differ, and in what: the text in asyncio, and in blocking code."""
SAME = {
    "AsyncIterator": "Iterator",
    "AsyncGenerator": "Iterator",
    "aclosing": "closing",
}


def kinds() -> Iterator[tuple[str, type[Any], type[Any]]]:
    """The public classes that both halves have: name, that of asyncio, that of blocking code."""
    for name in vars(pelton.sync)["__all__"]:
        theirs = getattr(pelton.sync, name)
        if isinstance(theirs, type) and name != "ColumnReader":
            yield name, getattr(pelton, name), theirs


def calls_of(kind: type[Any]) -> dict[str, Any]:
    """The public methods of a class."""
    return {
        name: value
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


KINDS = list(kinds())
both = pytest.mark.parametrize(("name", "ours", "theirs"), KINDS, ids=[name for name, *_ in KINDS])


def test_the_blocking_half_is_made_of_that_for_asyncio() -> None:
    changed = different()
    assert not changed, f"run python tools/gen_sync.py: it would change {', '.join(changed)}"


def test_every_module_is_made_or_written_by_hand() -> None:
    here, there = ({path.stem for path in (CLIENT / half).glob("*.py")} for half in ("aio", "sync"))
    assert here == {*MODULES, *BY_HAND} | ASYNCIO_ONLY
    assert there == {*MODULES, *BY_HAND} | BLOCKING_ONLY
    for name in MODULES:
        assert (
            (CLIENT / "sync" / f"{name}.py").read_text("utf-8").startswith("# Made of client/aio/")
        )


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("async def f():\n    return await g()\n", "def f():\n    return g()\n"),
        (
            "async def f():\n    async with a as b:\n        async for c in b:\n            yield c\n",
            "def f():\n    with a as b:\n        for c in b:\n            yield c\n",
        ),
        ("class A:\n    async def f(self): ...\n", "class A:\n    @locked\n    def f(self): ...\n"),
        ("class A:\n    async def _f(self): ...\n", "class A:\n    def _f(self): ...\n"),
        (
            "class A:\n    @unlocked\n    async def f(self): ...\n",
            "class A:\n    @unlocked\n    def f(self): ...\n",
        ),
        (
            "class A:\n    async def __anext__(self):\n        raise StopAsyncIteration\n",
            "class A:\n    @locked\n    def __next__(self):\n        raise StopIteration\n",
        ),
        ("f: Callable[[], Awaitable[int]]\n", "f: Callable[[], int]\n"),
        ('"""Use ``async with``, or await it."""\n', '"""Use ``with``, or await it."""\n'),
        ('"""Call ``await f()``."""\n', '"""Call ``f()``."""\n'),
        ("x = (await f()).y\nz = [a async for a in b]\n", "x = f().y\nz = [a for a in b]\n"),
        ("x = (await (a or b)).y\n", "x = ((a or b)).y\n"),
    ],
)
def test_the_words_async_and_await_are_left_out(text: str, made: str) -> None:
    head, _, body = sync("name", text).partition("\n")
    assert head.startswith("# Made of client/aio/name.py")
    assert body == made


@both
def test_both_halves_have_the_same_calls_explained(
    name: str, ours: type[Any], theirs: type[Any]
) -> None:
    here, there = calls_of(ours), calls_of(theirs)
    assert set(here) ^ set(there) <= ONE_HALF_ONLY.get(name, set())
    for call in (*here.values(), *there.values()):
        assert (inspect.getdoc(call) or "").strip(), call
    for each in set(here) & set(there):
        assert not inspect.iscoroutinefunction(there[each]), each
        assert not inspect.isasyncgenfunction(there[each]), each
        written, means = DIFFERENT.get(f"{name}.{each}", ("", ""))
        mine = plain_signature(here[each])
        assert written in mine
        assert mine.replace(written, means) == plain_signature(there[each]), each


def plain_signature(call: Any) -> str:
    """A signature as blocking code has it."""
    text = str(inspect.signature(call))
    text = re.sub(r"\bAwaitable\[(.*?)\]", r"\1", text)
    for word, meant in SAME.items():
        text = re.sub(rf"\b{word}\b", meant, text)
    return text.replace("pelton.client.aio", "pelton.client.sync")


@both
def test_a_call_shows_the_method_itself(name: str, ours: type[Any], theirs: type[Any]) -> None:
    """In ``inspect.getsource``, in ``help()`` and in its signature: an editor and a debugger go where it is."""
    for kind in (ours, theirs):
        shown = pydoc.plain(pydoc.render_doc(kind))
        for call, method in calls_of(kind).items():
            source = textwrap.dedent(inspect.getsource(method))
            [made] = ast.parse(source).body
            assert isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef), source
            assert made.name == method.__name__ == call
            assert re.search(rf"^(async )?def {call}\(", source, re.MULTILINE)
            assert method.__qualname__.endswith(f".{call}")
            parameters = list(inspect.signature(method).parameters.values())
            own = made.args
            written = [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg]
            assert {each.name for each in parameters} == {each.arg for each in written if each}
            assert f"{call}({parameters[0].name}" in shown, call
