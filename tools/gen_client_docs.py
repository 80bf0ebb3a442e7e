"""Makes docs/reference/api-client-*.md from the docstrings of the client, the testing tools and the embedded server.

Run without arguments to write them; with --check to exit 1 when one is not current. Needs the built package.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
import typing
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pelton.client
import pelton.embedded
import pelton.testing

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/reference"
WIDTH = 100
MODULES: tuple[ModuleType, ...] = (pelton.client, pelton.testing, pelton.embedded)


class Page(NamedTuple):
    """A page: its title, what it is about, a how-to, and the modules whose names it has."""

    title: str
    about: str
    more: str
    modules: str


# The first page with a module that fits has the name; errors have their own page.
PAGES = {
    "errors": Page("Errors", "the errors that a program may catch", "client.md#errors", r"$^"),
    "testing": Page(
        "Testing and embedding",
        "`pelton.testing` and `pelton.embedded`",
        "../howto/test-with-pelton.md",
        r"pelton\.(testing|embedded)",
    ),
    "services": Page(
        "Services", "services and their clients", "../howto/services.md", r".*\.services\b"
    ),
    "key-value": Page("Key-value", "buckets", "../howto/key-value.md", r".*\.keyvalue\b"),
    "object-store": Page(
        "Object stores", "buckets of objects", "../howto/object-store.md", r".*\.objects\b"
    ),
    "consumers": Page(
        "Consumers",
        "what receives the messages of a stream",
        "../howto/consume.md",
        r".*\.(consum\w*|pull\w*|columns|groups)\b",
    ),
    "messages": Page(
        "Messages",
        "messages and subscriptions",
        "client.md#messaging",
        r".*\.(messages|subscription|subjects)$",
    ),
    "jetstream": Page(
        "JetStream",
        "streams and publishing",
        "client.md#jetstream",
        r".*\.(jetstream|publishing|batches|counters|schedules)$",
    ),
    "values": Page(
        "Configurations and infos",
        "configurations, and what the server says about streams, consumers and accounts",
        "../howto/manage-streams-from-python.md",
        r"pelton\.api\b|.*\.(models|management)$",
    ),
    "connection": Page("Connection", "connections, options, events", "../howto/connect.md", ".*"),
}
_ADDRESS = re.compile(r"<[^<>]*>")
_MODULE = re.compile(
    r"\b(?:pelton(?:\.\w+)*|collections\.abc|typing|datetime|pathlib|types)\.(?=\w)"
)
_FIELD = re.compile(r"((?:[a-z_]\w*, )*[a-z_]\w*): (?=\S)")


def main() -> int:
    """Write what is stale, or with --check say so."""
    made = {FOLDER / f"api-client-{name}.md": text for name, text in pages().items()}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    gone = [path for path in sorted(FOLDER.glob("api-client-*.md")) if path not in made]
    if "--check" in sys.argv[1:]:
        for path in stale + gone:
            print(f"{path.relative_to(ROOT)} is not current: run tools/gen_client_docs.py")
        return 1 if stale or gone else 0
    for path in gone:
        path.unlink()
    for path in stale:
        path.write_text(made[path])
    return 0


def pages() -> dict[str, str]:
    """The text of each page."""
    found: dict[str, list[tuple[str, Any, ModuleType]]] = {name: [] for name in PAGES}
    for module in MODULES:
        for name in sorted(module.__all__):
            if not (module is pelton.client and name.startswith("Blocking")):
                value = getattr(module, name)
                found[page_of(name, value, module)].append((name, value, module))
    return {name: written(name, entries) for name, entries in found.items()}


def page_of(name: str, value: Any, module: ModuleType) -> str:
    """The page that has a name."""
    home = module.__name__
    if isinstance(value, type) and issubclass(value, Exception):
        return "errors"
    if module is pelton.client:
        home = assigned(name)[0] if not hasattr(value, "__qualname__") else value.__module__
    return next(each for each, page in PAGES.items() if re.match(page.modules, home))


def written(name: str, entries: list[tuple[str, Any, ModuleType]]) -> str:
    """A page."""
    page = PAGES[name]
    text = f"# API: {page.title}\n\n"
    text += (
        "Made from the docstrings by `tools/gen_client_docs.py`: change those, not this page.\n\n"
    )
    how = page.more.rpartition("/")[2].partition("#")[0]
    text += f"The names of {page.about}. [{how}]({page.more}) says how they are used; "
    others = [
        f"[{PAGES[each].title.lower()}](api-client-{each}.md)" for each in PAGES if each != name
    ]
    text += f"other pages: {', '.join(others)}.\n"
    if name not in ("errors", "testing"):
        text += (
            "\nWhat is `async` is awaited. The class for blocking code has the same calls without `await`, and\n"
            "`Iterator` in place of `AsyncGenerator`; other differences are named.\n"
        )
    for entry in entries:
        text += "\n" + "\n".join(section(*entry)).rstrip() + "\n"
    return text


# -- entries --------------------------------------------------------------------------------------


def section(name: str, value: Any, module: ModuleType) -> Iterator[str]:
    """The lines about a name."""
    yield f"## {name}\n"
    if module is not pelton.client and not issubclass_safely(value, Exception):
        yield f"In `{module.__name__}`.\n"
    if isinstance(value, type):
        yield from class_lines(name, value)
    elif inspect.isfunction(value):
        yield from fenced(declaration(name, value, ""))
        yield prose(value.__doc__) + "\n"
    else:
        _, text, doc = assigned(name)
        yield from fenced(
            f"{name}: {type(value).__name__}" if type(value) is bool else f"{name} = {text}"
        )
        yield prose(doc) + "\n"


def issubclass_safely(value: Any, kind: type) -> bool:
    """Whether it is a class below another one."""
    return isinstance(value, type) and issubclass(value, kind)


def class_lines(name: str, value: type) -> Iterator[str]:
    """A class with its members, and what differs in the blocking one."""
    twin = getattr(pelton.client, f"Blocking{name}", None)
    if twin is not None and value.__module__.startswith("pelton.client"):
        yield f"In blocking code: `Blocking{name}`.\n"
    else:
        twin = None
    error = issubclass(value, Exception)
    if error:
        bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
        yield f"Is a {bases}.\n"
    elif typing.is_typeddict(value):
        hints = [f"{each}: {typed(kind, name)}" for each, kind in value.__annotations__.items()]
        yield from fenced("\n".join(hints))
    elif is_made_by_users(value):
        yield from fenced(declaration(name, value, name))
    yield prose(value.__doc__) + "\n"
    attributes = documented(value)
    members = members_of(value)
    attributes |= {
        each: str(inspect.getdoc(member))
        for each, member in members.items()
        if isinstance(member, property) and each not in attributes
    }
    notes = [f"- `{each}`: {prose(attributes[each])}" for each in sorted(attributes)]
    if notes:
        yield "\n".join(note.replace("\n", "\n  ") for note in notes) + "\n"
    for each, member in members.items():
        if not isinstance(member, property):
            yield from member_lines(name, each, member, value, twin)
    if twin is not None:
        own = {k: v for k, v in members_of(twin).items() if not isinstance(v, property)}
        for each in sorted(own.keys() - members.keys()):
            yield f"### {name}.{each}, in blocking code\n"
            yield from fenced(declaration(each, own[each], name))
            yield prose(own[each].__doc__) + "\n"
        if missing := sorted(members.keys() - members_of(twin).keys()):
            yield f"Not in blocking code: {', '.join(f'`{each}`' for each in missing)}.\n"


def member_lines(
    name: str, each: str, member: Any, value: type, twin: type | None
) -> Iterator[str]:
    """A method, and its signature in blocking code if that is another one."""
    yield f"### {name}.{each}\n"
    shown = declaration(each, member, name)
    yield from fenced(shown)
    yield prose(member.__doc__) + "\n"
    other = members_of(twin).get(each) if twin is not None else None
    if other is None:
        return
    theirs = declaration(each, other, name)
    same = shown.removeprefix("async ").replace("AsyncGenerator[", "Iterator[")
    if theirs.replace("Blocking", "") != same.replace("Blocking", ""):
        yield "In blocking code:\n"
        yield from fenced(theirs)


def is_made_by_users(value: type) -> bool:
    """Whether its constructor is for programs, and not for the client itself."""
    home = value.__module__
    if home.startswith(("pelton.client.aio", "pelton.client.blocking.bulk.columns")):
        return False
    if getattr(value, "_is_protocol", False):
        return False
    homes = [base for base in value.__mro__ if base.__module__.startswith("pelton")]
    made = any("__init__" in vars(base) for base in homes)
    return made or hasattr(value, "__struct_fields__") or hasattr(value, "_fields")


def members_of(value: type) -> dict[str, Any]:
    """Its public methods and properties, also inherited from classes of the package."""
    homes = [base for base in value.__mro__ if base.__module__.startswith("pelton")]
    found: dict[str, Any] = {}
    for name in sorted({name for base in homes for name in vars(base)}):
        member = inspect.getattr_static(value, name)
        if isinstance(member, classmethod | staticmethod):
            member = getattr(value, name)
        function = inspect.isfunction(member) or inspect.ismethod(member)
        if (function or isinstance(member, property)) and not is_hidden(value, name, member):
            found[name] = member
    return found


def is_hidden(value: type, name: str, member: Any) -> bool:
    """Whether it is private, or the steps of a call."""
    if name.startswith("_"):
        return True
    if isinstance(member, property):
        return False
    returns = str(inspect.signature(member).return_annotation)
    return returns.startswith(("Steps[", "Flow[", "Plan["))


# The type variables in calls that both shells share: what they stand for in each class.
VARIABLES = {
    "Client": {"J": "JetStream", "SV": "Service", "SC": "ServiceClient"},
    "JetStream": {
        "B": "KeyValue[bytes]",
        "S": "ObjectStore",
        "SG": "StaticGroup",
        "EG": "ElasticGroup",
        "C": "Consumer",
        "PC": "PushConsumer",
    },
    "KeyValue": {"KW": "KeyWatch[V]", "KT": "KeyTransaction[V]", "Self": "KeyValue[V]"},
    "ObjectStore": {"W": "ObjectWatcher"},
    "Service": {"G": "ServiceGroup"},
    "ServiceGroup": {"G": "ServiceGroup"},
}


# -- signatures -----------------------------------------------------------------------------------


def declaration(name: str, member: Any, owner: str) -> str:
    """A signature, as one writes it; over several lines if it is long."""
    signature = inspect.signature(member)
    parts: list[str] = []
    kinds = [each.kind for each in signature.parameters.values()]
    star = inspect.Parameter.VAR_POSITIONAL in kinds
    for each in signature.parameters.values():
        if each.name == "self" and not parts:
            continue
        if each.kind is each.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        parts.append(parameter(each, owner))
    returns = typed(signature.return_annotation, owner)
    end = f") -> {returns}" if returns and not isinstance(member, type) else ")"
    begin = "async " if inspect.iscoroutinefunction(member) else ""
    begin += f"{name}("
    line = f"{begin}{', '.join(parts)}{end}"
    if len(line) <= WIDTH:
        return line
    return begin + "\n" + "".join(f"    {part},\n" for part in parts) + end


def parameter(each: inspect.Parameter, owner: str) -> str:
    """A parameter with its type and default."""
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}
    text = f"{stars[each.kind]}{each.name}" if each.kind in stars else each.name
    kind = typed(each.annotation, owner)
    text += f": {kind}" if kind else ""
    if each.default is each.empty:
        return text
    value = each.default
    default = json.dumps(value) if isinstance(value, str) else _ADDRESS.sub("...", repr(value))
    default = _MODULE.sub("", default).replace("'", '"')
    return f"{text} = {default}" if kind else f"{text}={default}"


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
    text = text.replace("float | timedelta | str", "Duration").replace(
        "int | datetime | str", "Moment"
    )
    known = {"M": "Message", "R": "Request"} | VARIABLES.get(owner, {})
    for variable, means in known.items():
        text = re.sub(rf"(?<![\w\"'.]){variable}(?![\w\"'])", means, text)
    return "" if text == "Any" and owner == "" else text


# -- text -----------------------------------------------------------------------------------------


def fenced(text: str) -> Iterator[str]:
    """A block of Python."""
    yield f"```python\n{text}\n```\n"


def prose(doc: str | None) -> str:
    """A docstring as Markdown: fields become a list, what follows ``::`` a block."""
    lines: list[str] = []
    rest = iter(inspect.cleandoc(doc or "").split("\n\n"))
    for paragraph in rest:
        if paragraph.startswith("    "):
            block = textwrap.dedent(paragraph)
            if lines and lines[-1].endswith("```"):
                lines[-1] = lines[-1].removesuffix("```") + f"\n{block}\n```"
            else:
                lines.append(f"```{'python' if is_python(block) else 'text'}\n{block}\n```")
            continue
        if paragraph == "::":
            continue
        text = re.sub(r"``(.+?)``", r"`\1`", paragraph)
        text = re.sub(r" ::$", "", text).replace("::", ":") if text.endswith("::") else text
        out: list[str] = []
        for line in text.split("\n"):
            if found := _FIELD.match(line):
                names = ", ".join(f"`{each}`" for each in found[1].split(", "))
                gap = [""] if out and not out[-1].startswith(("- ", "  ")) else []
                out += [*gap, f"- {names}: {line[found.end() :]}"]
            else:
                out.append(
                    line if not out or not out[-1].startswith(("- ", "  ")) else f"  {line.strip()}"
                )
        lines.append("\n".join(out))
    return "\n\n".join(lines)


def is_python(text: str) -> bool:
    """Whether it can be read as Python."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@cache
def tree_of(path: Path) -> ast.Module:
    """A module of the package."""
    return ast.parse(path.read_text())


@cache
def classes_of(path: Path) -> list[ast.ClassDef]:
    """The classes of a module of the package, also those within others."""
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]


@cache
def assigned(name: str) -> tuple[str, str, str]:
    """Where a value of the package is assigned: module, its text, the docstring behind it."""
    source = ROOT / "src"
    folders = [source.joinpath(*module.__name__.split(".")) for module in MODULES]
    for path in [path for folder in folders for path in sorted(folder.rglob("*.py"))]:
        body = tree_of(path).body
        for node, behind in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign | ast.Assign) or node.value is None:
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id == name:
                text = ast.unparse(node.value).strip("'\"")
                home = ".".join(path.relative_to(source).with_suffix("").parts)
                return home, text, literal(behind)
    raise LookupError(f"{name} is assigned nowhere in the package")


def literal(node: ast.AST | None) -> str:
    """The text of a statement that is only a text."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


def documented(value: type) -> dict[str, str]:
    """Attributes with a docstring behind their first assignment."""
    found: dict[str, str] = {}
    for base in value.__mro__:
        path = Path(getattr(sys.modules.get(base.__module__), "__file__", None) or "missing")
        if not base.__module__.startswith("pelton") or path.suffix != ".py":
            continue
        for node in classes_of(path):
            if node.name == base.__name__:
                made = [each for each in node.body if isinstance(each, ast.FunctionDef)]
                bodies = [node.body, *(each.body for each in made if each.name == "__init__")]
                for body in bodies:
                    for name, text in texts(body):
                        found.setdefault(name, text)
    return {name: text for name, text in sorted(found.items()) if not name.startswith("_")}


def texts(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Assignments with a docstring behind them."""
    for node, behind in pairwise(body):
        if isinstance(node, ast.AnnAssign | ast.Assign) and (text := literal(behind)):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name):
                yield target.id, text
            elif isinstance(target, ast.Attribute):
                yield target.attr, text


if __name__ == "__main__":
    sys.exit(main())
