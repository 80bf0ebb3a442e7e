"""``pelton`` and ``pelton.sync``: each name is written once, is loaded at first use, and a wrong one is explained."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pickle
import subprocess
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

import pelton.client
import pelton.sync
from pelton.exports import at_first_use

DOORS = (pelton, pelton.sync)


def imports_of(door: ModuleType) -> list[ast.ImportFrom]:
    """The imports of the names that a door has."""
    body = ast.parse(inspect.getsource(door)).body
    [block] = [node for node in body if isinstance(node, ast.With)]
    found = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert len(found) == len(block.body)
    return found


def loaded_by(program: str) -> set[str]:
    """The modules that a program loads into a new interpreter."""
    code = f"import sys\nbefore = set(sys.modules)\n{program}\nprint(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize("door", DOORS)
def test_each_name_is_written_once_in_order(door: ModuleType) -> None:
    imports = imports_of(door)
    modules = [node.module for node in imports]
    assert modules == sorted(set(modules), key=str)
    written = [alias for node in imports for alias in node.names]
    assert all(alias.asname == alias.name for alias in written)  # checkers see those only
    names = [alias.name for alias in written]
    assert sorted(names) == vars(door)["__all__"]
    assert len(names) == len(set(names))
    for node in imports:
        lines = [alias.name for alias in node.names]
        assert lines == sorted(
            lines, key=lambda name: (not name.isupper(), name[0].islower(), name)
        )


def test_both_doors_have_their_own_classes() -> None:
    for door, mine, other in ((pelton, ".aio", ".sync"), (pelton.sync, ".sync", ".aio")):
        homes = [str(node.module) for node in imports_of(door)]
        assert any(f".client{mine}" in home for home in homes)
        assert not any(f".client{other}" in home for home in homes)


@pytest.mark.parametrize("door", DOORS)
def test_a_class_tells_the_module_that_defines_it(door: ModuleType) -> None:
    """So a traceback shows ``pelton.errors.ApiError``, and classes are pickled by that name."""
    for node in imports_of(door):
        for alias in node.names:
            value = getattr(door, alias.name)
            if alias.name == "Metadata":  # another name of ``AckSubject``
                assert str(node.module).endswith(".models")
            elif inspect.isclass(value) or inspect.isfunction(value):
                assert (value.__module__, value.__qualname__) == (node.module, alias.name)
                assert pickle.loads(pickle.dumps(value)) is value


def test_a_program_loads_what_it_uses() -> None:
    first = loaded_by("import pelton")
    assert {name for name in first if name.startswith("pelton")} == {"pelton", "pelton.exports"}
    assert first <= {"pelton", "pelton.exports", "__future__", "types"}
    assert loaded_by("import pelton.sync") == first | {"pelton.sync"}
    errors = loaded_by("from pelton import ApiError, PeltonTimeoutError")
    assert {name for name in errors if name.startswith("pelton.c")} == set()
    models = loaded_by("from pelton import ConsumerConfig, Options, StreamConfig")
    blocking = loaded_by("from pelton.sync import Client, JetStream, Message, connect")
    asyncio = loaded_by("from pelton import Client, JetStream, Message, connect")
    shells = ("pelton.client.aio", "pelton.client.sync")
    assert not {name for name in models if name.startswith((*shells, "asyncio", "_ssl"))}
    assert not {name for name in blocking if name.startswith((shells[0], "asyncio"))}
    assert not {name for name in asyncio if name.startswith(shells[1])}
    assert "asyncio" in asyncio


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("from pelton import conect", "from 'pelton'; did you mean 'connect'?"),
        ("from pelton import Streamconfig", "from 'pelton'; did you mean 'StreamConfig'?"),
        ("from pelton.sync import conect", "from 'pelton.sync'; did you mean 'connect'?"),
        ("from pelton.sync import StreamConfig", "write `from pelton import StreamConfig`"),
        ("from pelton import ColumnReader", "write `from pelton.sync import ColumnReader`"),
        ("from pelton.client import connect", "write `from pelton import connect`"),
        ("from pelton.client import StreamConfig", "write `from pelton import StreamConfig`"),
        ("from pelton import nothing_like_it", "name 'nothing_like_it' from 'pelton'"),
        ("from pelton.client import Nothing", "name 'Nothing' from 'pelton.client'"),
    ],
)
def test_an_import_of_a_wrong_name_is_told_the_right_one(program: str, text: str) -> None:
    with pytest.raises(ImportError) as raised:
        exec(program, {})
    assert str(raised.value).startswith("cannot import name ")
    assert str(raised.value).endswith(text)
    assert raised.value.name == program.split()[1]


@pytest.mark.parametrize("door", [*DOORS, pelton.client])
def test_an_attribute_that_is_missing_is_missing(door: Any) -> None:
    """Python itself adds what it could be."""
    assert not hasattr(door, "conect")
    assert getattr(door, "__wrapped__", None) is None
    with pytest.raises(AttributeError) as raised:
        _ = door.conect
    assert str(raised.value) == f"module {door.__name__!r} has no attribute 'conect'"
    assert (raised.value.name, raised.value.obj) == ("conect", door)


def test_the_package_of_the_client_tells_where_its_names_went() -> None:
    for door in DOORS:
        for name in vars(door)["__all__"]:
            if name not in ("sync", "ColumnReader"):
                assert not hasattr(pelton.client, name)
                with pytest.raises(AttributeError, match=f": write `from pelton import {name}`$"):
                    getattr(pelton.client, name)


def test_a_door_can_be_imported_whole() -> None:
    for door in DOORS:
        names: dict[str, Any] = {}
        exec(f"from {door.__name__} import *", names)
        assert all(names[name] is getattr(door, name) for name in vars(door)["__all__"])


def test_the_imports_of_other_modules_go_on_meanwhile() -> None:
    """Also in other threads; and an error in the block leaves nothing behind."""
    original = builtins.__import__
    other: list[Any] = []
    package: dict[str, Any] = {"__name__": "package"}

    def elsewhere() -> None:
        exec("from json import loads", globals_of := {"__name__": "elsewhere"})
        other.append(globals_of["loads"])

    with at_first_use(package):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        exec("from json import dumps, loads", package)
        assert package["loads"] is None
    assert other == [importlib.import_module("json").loads]
    assert package["__all__"] == ["dumps", "loads"]
    assert "loads" not in package
    assert package["__getattr__"]("loads") is other[0]
    assert package["loads"] is other[0]
    with pytest.raises(ZeroDivisionError), at_first_use({"__name__": "package"}):
        _ = 1 // 0
    assert builtins.__import__ is original
