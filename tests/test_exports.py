"""The stubs of the core say what is there: every name in a .pyi is in the compiled module."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pelton.core

CORE = Path(pelton.core.__path__[0])
MODULES = sorted(f"{path.parent.name}.{path.stem}" for path in CORE.glob("*/*.pyi"))


def stub(module: str) -> ast.Module:
    return ast.parse((CORE / f"{module.replace('.', '/')}.pyi").read_text())


def declared(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Names that a stub's module or class body declares."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node


@pytest.mark.parametrize("name", MODULES)
def test_what_the_stub_declares_is_there(name: str) -> None:
    module = importlib.import_module(f"pelton.core.{name}")
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
                and not issubclass(cls, Exception)  # made with the instance
            ]
    assert not missing, f"pelton.core.{name} lacks {missing}"
