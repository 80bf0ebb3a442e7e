"""The stubs of the core say what is there: a name in a .pyi is in the module, and the reverse."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import penstock.core

CORE = Path(penstock.core.__path__[0])
MODULES = sorted(path.stem for path in CORE.glob("*.pyi") if path.stem != "__init__")


def stub(module: str) -> ast.Module:
    return ast.parse((CORE / f"{module}.pyi").read_text())


def declared(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Names that a stub's module or class body declares."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node


@pytest.mark.parametrize("name", MODULES)
def test_what_the_stub_declares_is_there(name: str) -> None:
    module = importlib.import_module(f"penstock.core.{name}")
    missing = []
    for top, node in declared(stub(name).body):
        if not hasattr(module, top):
            missing.append(top)
        elif isinstance(node, ast.ClassDef):
            cls = getattr(module, top)
            fields = getattr(cls, "_fields", ())
            missing += [
                f"{top}.{inner}"
                for inner, _ in declared(node.body)
                if not hasattr(cls, inner)
                and not inner.startswith("__")
                and inner not in fields
                and not is_exception_field(cls, inner)
            ]
    assert not missing, f"penstock.core.{name} lacks {missing}"


def is_exception_field(cls: type, name: str) -> bool:
    """Exceptions set their fields when they are made; an instance is the only witness."""
    return (
        issubclass(cls, Exception)
        and f"self.{name}" in (CORE / f"{cls.__module__.split('.')[-1]}.pyx").read_text()
    )


def functions(module: ModuleType) -> Iterator[str]:
    """Public functions of a module; its classes may be for compiled callers only."""
    for name, value in vars(module).items():
        ours = getattr(value, "__module__", None) == module.__name__
        if not name.startswith("_") and ours and callable(value) and not inspect.isclass(value):
            yield name


@pytest.mark.parametrize("name", MODULES)
def test_what_can_be_called_is_declared(name: str) -> None:
    module = importlib.import_module(f"penstock.core.{name}")
    known = {top for top, _ in declared(stub(name).body)}
    assert not set(functions(module)) - known
