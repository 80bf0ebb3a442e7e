"""The Python reference: blocks for mkdocstrings, and what griffe does not see of the client.

A class has methods of base classes that are not public, such as ``Management`` of JetStream, and types that
users know by another name. The extension gives each public class all its calls, with the types as users
know them. It also makes Markdown of docstrings.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
import typing
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import griffe

import pelton.embedded
import pelton.sync
import pelton.testing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

MODULES: tuple[ModuleType, ...] = (pelton, pelton.sync, pelton.testing, pelton.embedded)

# A name is on the first page whose pattern fits its module and the name; errors have a page of their own.
PAGES = {
    "errors": r"$^",
    "testing": r"pelton\.(testing|embedded)",
    "services": r".*\.services\b",
    "key-value": r".*\.(key\w+|transactions|KeyWatch)\b",
    "object-store": r".*\.(object\w*|ObjectWatch)\b",
    "consumers": r".*\.(consum\w*|operations|columns|groups)\b",
    "messages": r".*\.(messages|subscription|subjects)\b",
    "jetstream": r".*\.(jetstream|publishing|batches|counters|schedules)\b",
    "values": r"pelton\.api\b|.*\.models\b",
    "connection": ".*",
}
# What the type variables of base classes stand for in each class.
VARIABLES: dict[str, dict[str, str]] = {
    "KeyWatch": {"T": "KvEntry[V]"},
    "ObjectWatch": {"T": "ObjectInfo"},
}
_ADDRESS = re.compile(r"<[^<>]*>")
_MODULE = re.compile(
    r"\b(?:pelton(?:\.\w+)*|builtins|collections\.abc|typing|datetime|pathlib|types)\.(?=\w)"
)
_FIELD = re.compile(r"((?:[a-z_]\w*, )*[a-z_]\w*): (?=\S)")


class Name(NamedTuple):
    """A public name of a module."""

    module: ModuleType
    name: str
    value: Any

    @property
    def path(self) -> str:
        """Where users import it from."""
        return f"{self.module.__name__}.{self.name}"

    @property
    def twin(self) -> Name | None:
        """The same name for blocking code, of one for asyncio."""
        if self.module is not pelton or self.name not in exported(pelton.sync):
            return None
        return Name(pelton.sync, self.name, getattr(pelton.sync, self.name))


def exported(module: ModuleType) -> list[str]:
    """The public names of a module, in order, without other modules."""
    names = vars(module)["__all__"]  # checkers do not see it where names are imported at first use
    return sorted(name for name in names if not inspect.ismodule(getattr(module, name)))


def names() -> Iterator[Name]:
    """All public names; one for blocking code is described with the same name for asyncio."""
    for module in MODULES:
        for name in exported(module):
            if module is not pelton.sync or name not in exported(pelton):
                yield Name(module, name, getattr(module, name))


def page_of(found: Name) -> str:
    """The page that has a name."""
    if isinstance(found.value, type) and issubclass(found.value, Exception):
        return "errors"
    home = found.module.__name__
    if found.module in (pelton, pelton.sync):
        value = found.value
        home = value.__module__ if hasattr(value, "__qualname__") else home_of(found.name)
    return next(
        page for page, pattern in PAGES.items() if re.match(pattern, f"{home}.{found.name}")
    )


def blocks(page: str) -> str:
    """What mkdocstrings puts on a page."""
    return "\n\n".join(
        block for each in names() if page_of(each) == page for block in block_of(each)
    )


def block_of(found: Name) -> Iterator[str]:
    """The blocks of a name: its own, and one for what is different in blocking code."""
    value = found.value
    if not isinstance(value, type):
        yield _block(found, [])
        if found.twin is not None:
            yield _block(found.twin, [])
        return
    error = issubclass(value, Exception)
    calls = [each for each, one in members_of(value).items() if not isinstance(one, property)]
    yield _block(found, [*attributes_of(value), *calls], made=is_made_by_users(value), bases=error)
    if found.twin is not None:
        theirs = members_of(found.twin.value)
        own = [
            each
            for each, one in theirs.items()
            if not isinstance(one, property) and is_other(value, found.twin.value, each)
        ]
        yield _block(found.twin, own)
        missing = [f"`{each}`" for each in calls if each not in theirs]
        text = f"The other members are those of `{found.name}`, without `await`"
        yield f"{text}; it has no {', '.join(missing)}." if missing else f"{text}."


def _block(found: Name, members: list[str], *, made: bool = False, bases: bool = False) -> str:
    listed = [*(["__init__"] if made else []), *members]
    heading = found.name if found.module is pelton else found.path
    options = {
        "heading": heading,
        "toc_label": f"sync.{found.name}" if found.module is pelton.sync else found.name,
        "members": listed or False,
        "inherited_members": bool(listed),
        "filters": [],
        "show_attribute_values": not isinstance(found.value, type),
        "show_bases": bases,
        "merge_init_into_class": made,
    }
    lines = [f"      {name}: {json.dumps(value)}" for name, value in options.items()]
    return "\n".join([f"::: {found.path}", "    options:", *lines])


def is_other(value: type, twin: type, name: str) -> bool:
    """Whether a call is not the same in blocking code, but for `await`."""
    if name not in members_of(value):
        return True
    here, there = (signature_text(each, name) for each in (value, twin))
    return there != re.sub(r"\bAsync(?:Generator|Iterator)\[", "Iterator[", here)


def signature_text(owner: type, name: str) -> str:
    """A signature, to compare it."""
    signature = inspect.signature(members_of(owner)[name])
    texts = [str(each) for each in signature.parameters.values()]
    return _MODULE.sub("", f"({', '.join(texts)}) -> {signature.return_annotation}")


# -- what a class has -----------------------------------------------------------------------------


def is_made_by_users(value: type) -> bool:
    """Whether its constructor is for programs, and not for the client itself."""
    home = value.__module__
    if home.startswith(("pelton.client.aio", "pelton.client.sync.columns")):
        return False
    if getattr(value, "_is_protocol", False) or issubclass(value, Exception):
        return False
    homes = [base for base in value.__mro__ if base.__module__.startswith("pelton")]
    made = any("__init__" in vars(base) for base in homes)
    return made or hasattr(value, "__struct_fields__") or hasattr(value, "_fields")


@cache
def members_of(value: type) -> dict[str, Any]:
    """Its public methods and properties, also inherited from classes of the package."""
    homes = [base for base in value.__mro__ if base.__module__.startswith("pelton")]
    found: dict[str, Any] = {}
    for name in sorted({name for base in homes for name in vars(base)}):
        member = inspect.getattr_static(value, name)
        if isinstance(member, classmethod | staticmethod):
            member = getattr(value, name)
        function = inspect.isfunction(member) or inspect.ismethod(member)
        if (function or isinstance(member, property)) and not name.startswith("_"):
            found[name] = member
    return found


def attributes_of(value: type) -> list[str]:
    """Its public attributes that have a docstring, and its properties."""
    properties = {name for name, one in members_of(value).items() if isinstance(one, property)}
    return sorted(properties | documented(value))


@cache
def documented(value: type) -> set[str]:
    """Attributes with a docstring after their first assignment."""
    found: set[str] = set()
    for base in value.__mro__:
        path = Path(getattr(sys.modules.get(base.__module__), "__file__", None) or "missing")
        if not base.__module__.startswith("pelton") or path.suffix != ".py":
            continue
        for node in classes_of(path).get(base.__name__, ()):
            made = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            for body in [node.body, *(each.body for each in made if each.name == "__init__")]:
                found.update(explained(body))
    return {name for name in found if not name.startswith("_")}


def explained(body: list[ast.stmt]) -> Iterator[str]:
    """Assignments with a docstring after them."""
    for node, after in pairwise(body):
        text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if text and isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name):
                yield target.id
            elif isinstance(target, ast.Attribute):
                yield target.attr


@cache
def tree_of(path: Path) -> ast.Module:
    """A module of the package."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def classes_of(path: Path) -> dict[str, list[ast.ClassDef]]:
    """The classes of a module, also those within others."""
    found: dict[str, list[ast.ClassDef]] = {}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef):
            found.setdefault(node.name, []).append(node)
    return found


@cache
def home_of(name: str) -> str:
    """The module of the client where a value without a home of its own is assigned."""
    folder = Path(pelton.__file__).parent / "client"
    for path in sorted(folder.rglob("*.py")):
        for node in tree_of(path).body:
            if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if isinstance(target, ast.Name) and target.id == name:
                    words = path.relative_to(folder.parents[1]).with_suffix("").parts
                    return ".".join(words)
    raise LookupError(f"{name} is assigned nowhere in the client")


# -- what griffe is told --------------------------------------------------------------------------


class Calls(griffe.Extension):
    """Gives the classes of griffe the calls that the real ones have."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Complete the public classes, and make Markdown of docstrings."""
        if pkg.name != "pelton":
            return
        for each in names():
            for found in (each, each.twin):
                value = found and found.value
                if isinstance(value, type) and value.__module__.startswith("pelton."):
                    complete(pkg, value)

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Make Markdown of a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = prose(obj.docstring.value)


def complete(package: griffe.Module, value: type) -> None:
    """Give a class its calls, with their types as users know them, and its constructor if it is theirs."""
    found = package[f"{value.__module__}.{value.__qualname__}".partition(".")[2]]
    scope = package["sync"] if ".client.sync" in value.__module__ else package
    for name, member in members_of(value).items():
        if not isinstance(member, property):
            found.set_member(name, function(name, member, value.__name__, found, scope))
        elif name in found.members and not found.members[name].has_docstring:  # only its type
            found.members[name].docstring = griffe.Docstring(prose(member.__doc__))
    if is_made_by_users(value):
        made = function("__init__", value, value.__name__, found, scope)
        made.docstring = None
        found.set_member("__init__", made)
    elif "__init__" in found.members:
        found.del_member("__init__")


def function(
    name: str, member: Any, owner: str, parent: griffe.Class, scope: griffe.Module
) -> griffe.Function:
    """A call as griffe has it."""
    signature = inspect.signature(member)
    parameters = [
        griffe.Parameter(
            each.name,
            kind=griffe.ParameterKind(each.kind.description),
            annotation=expression(typed(each.annotation, owner), scope),
            default=None if each.default is each.empty else default_of(each.default),
        )
        for each in signature.parameters.values()
    ]
    if not parameters or parameters[0].name != "self":
        parameters.insert(0, griffe.Parameter("self", kind=griffe.ParameterKind.positional_only))
    returns = None if isinstance(member, type) else typed(signature.return_annotation, owner)
    made = griffe.Function(
        name,
        parameters=griffe.Parameters(*parameters),
        returns=expression(returns or "", scope),
        parent=parent,
        docstring=griffe.Docstring(prose(inspect.getdoc(member))),
    )
    made.labels = {"async"} if inspect.iscoroutinefunction(member) else set()
    return made


def expression(text: str, scope: griffe.Module) -> griffe.Expr | str | None:
    """A type, whose names lead to where they are described."""
    if not text:
        return None
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return text
    return griffe.get_annotation(tree.body, parent=scope)


def default_of(value: Any) -> str:
    """The default of a parameter, as one writes it."""
    text = json.dumps(value) if isinstance(value, str) else _ADDRESS.sub("...", repr(value))
    return _MODULE.sub("", text).replace("'", '"')


def typed(annotation: Any, owner: str) -> str:
    """A type as users know it: without modules, and with the class that a variable stands for."""
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        holder = type("holder", (), {"__annotations__": {"it": annotation}})
        annotation = inspect.formatannotation(typing.get_type_hints(holder)["it"])  # no Annotated
    text = _MODULE.sub("", annotation)
    text = text.replace("'", '"' if "Literal" in text else "")
    text = re.sub(r"^Optional\[(.*)\]$", r"\1 | None", text)
    for long, short in (
        ("float | timedelta | str", "Duration"),
        ("int | datetime | str", "Moment"),
    ):
        text = text.replace(long, short)
    for variable, means in VARIABLES.get(owner, {}).items():
        text = re.sub(rf"(?<![\w\"'.]){variable}(?![\w\"'])", means, text)
    return text


def prose(doc: str | None) -> str:
    """A docstring as Markdown: fields become a list, what follows ``::`` a block."""
    lines: list[str] = []
    for part in inspect.cleandoc(doc or "").split("\n\n"):
        if part.startswith("    "):
            block = textwrap.dedent(part)
            if lines and lines[-1].endswith("```"):
                lines[-1] = lines[-1].removesuffix("```") + f"\n{block}\n```"
            else:
                lines.append(f"```{'python' if is_python(block) else 'text'}\n{block}\n```")
            continue
        if part == "::":
            continue
        text = re.sub(r"``(.+?)``", r"`\1`", part)
        text = re.sub(r" ::$", "", text).replace("::", ":") if text.endswith("::") else text
        out: list[str] = []
        for line in text.split("\n"):
            if found := _FIELD.match(line):
                fields = ", ".join(f"`{each}`" for each in found[1].split(", "))
                gap = [""] if out and not out[-1].startswith(("- ", "    ")) else []
                out += [*gap, f"- {fields}: {line[found.end() :]}"]
            elif out and out[-1].startswith(("- ", "    ")):
                out.append(f"    {line.strip()}")
            else:
                out.append(line)
        lines.append("\n".join(out))
    return "\n\n".join(lines)


def is_python(text: str) -> bool:
    """Whether it can be read as Python."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
