"""Reads a filter of Arrow as a tree.

pyarrow can evaluate, print and pickle a ``compute.Expression``, but has no way to look into one. The
pickled form is an IPC file with one row: the literals are its columns, and its schema's metadata has
the tree as a list in prefix order::

    call and_kleene, call equal, field_ref subject, literal 0, end equal, ..., options 3, end and_kleene

The keys repeat, which a dict of the metadata loses, so the list is read from the C data interface
of the schema. Does not depend on messages.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.compute as pc

_METADATA_AT = 16  # struct ArrowSchema: format, name, metadata
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


class UnreadableError(ValueError):
    """The expression has a form that this version of pyarrow does not have or we do not know."""


@dataclass(frozen=True)
class Field:
    """A column of the table."""

    name: str


@dataclass(frozen=True)
class Literal:
    """A constant."""

    value: pa.Scalar


@dataclass(frozen=True)
class Call:
    """A function of Arrow; `options` is a struct, or None."""

    function: str
    arguments: tuple[Node, ...]
    options: pa.Scalar | None = None


Node = Field | Literal | Call


def tree_of(expression: pc.Expression) -> Node:
    """The expression as a tree. UnreadableError."""
    try:
        _, (pickled,) = expression.__reduce__()
        file = pa.ipc.open_file(pickled)
        row = file.get_batch(0)
        items = _items(file.schema)
        node = _node(*next(items), items, row)
    except (StopIteration, ValueError, TypeError, IndexError, AttributeError) as error:
        raise UnreadableError(f"not a filter that can be read: {error!r}") from None
    if next(items, None) is not None:
        raise UnreadableError("text follows the filter")
    return node


def fields_of(expression: pc.Expression) -> set[str]:
    """The columns that the expression reads. UnreadableError."""
    return set(_fields(tree_of(expression)))


def _fields(node: Node) -> Iterator[str]:
    if isinstance(node, Field):
        yield node.name
    elif isinstance(node, Call):
        for each in node.arguments:
            yield from _fields(each)


def _node(kind: str, text: str, items: Iterator[tuple[str, str]], row: pa.RecordBatch) -> Node:
    if kind == "field_ref":
        return Field(text)
    if kind == "literal":
        return Literal(row.column(int(text))[0])
    if kind != "call":
        raise UnreadableError(f"{kind} {text}")
    arguments: list[Node] = []
    options = None
    while True:
        kind, value = next(items)
        if kind == "end":
            return Call(text, tuple(arguments), options)
        if kind == "options":
            options = row.column(int(value))[0]
        else:
            arguments.append(_node(kind, value, items, row))


def _items(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """The metadata as pairs, in their order: a count, then lengths and bytes, all int32 of the machine."""
    capsule = schema.__arrow_c_schema__()
    address = ctypes.c_void_p.from_address(_pointer_of(capsule, b"arrow_schema") + _METADATA_AT)
    at = address.value
    if at is None:
        return
    count = ctypes.c_int32.from_address(at).value
    at += 4
    for _ in range(count):
        pair = []
        for _ in range(2):
            length = ctypes.c_int32.from_address(at).value
            pair.append(ctypes.string_at(at + 4, length).decode())
            at += 4 + length
        yield pair[0], pair[1]
    del capsule  # it owns the bytes
