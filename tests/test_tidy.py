"""House rules that a tool can hold: sizes, docstrings, companions of the core, leftovers.

Each test reads all files and lists every finding. The limits are ratchets: they may be lowered, and
raised only with a reason beside them.
"""

import ast
import gc
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

import pelton.sync
from pelton.client.base.message import BaseMessage
from tests.owners import classes_of
from tests.statements import statements

ROOT = Path(__file__).parents[1]
CORE = ROOT / "src" / "pelton" / "core"

# A file holds one idea, and may take the lines that it needs. What makes a file hard to read is a
# long function or a class with too much in it.
FILE_LINES = 800
FUNCTION_LINES = 70
# Functions of the core that are longer today, with their length: none may be added, none may grow.
LONG_IN_THE_CORE: dict[str, int] = {}
CLASS_METHODS = 45
CLASS_FIELDS = 45
# The core's signatures carry their contract beside them.
CORE_LINE_WIDTH = 160
PRIVATE_PER_1000_LINES = 1.0
COMMITTED_BYTES = 200_000


def committed() -> list[Path]:
    """The files that git knows, or will know: not what .gitignore leaves out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        names = [
            str(p.relative_to(ROOT)) for top in ("src", "tests") for p in (ROOT / top).rglob("*")
        ]
    else:
        names = listed.stdout.split("\0")
    skip = {".so", ".pyc"}
    paths = (ROOT / name for name in names if name)
    return sorted(p for p in paths if p.is_file() and p.suffix not in skip)


FILES = committed()
PYTHON = [p for p in FILES if p.suffix == ".py"]
# What protoc wrote is nobody's to read.
OURS = [p for p in PYTHON if (ROOT / "src") in p.parents and not p.stem.endswith("_pb2")]
CYTHON = [p for p in FILES if p.suffix in {".pyx", ".pxd"}]
SOURCES = [
    p
    for p in FILES
    if p.suffix in {".py", ".pyi", ".pyx", ".pxd", ".c", ".h"} and p.name != "setup.py"
]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text(errors="replace")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """The trees of all files are millions of objects: nobody looks for garbage among them, and none stays."""
    gc.disable()
    yield
    text_of.cache_clear()
    tree_of.cache_clear()
    gc.enable()


def test_the_lists_are_not_empty() -> None:
    assert len(OURS) > 1
    assert len(CYTHON) > 1


def test_a_file_holds_one_idea() -> None:
    lengths = {
        name(path): text_of(path).count("\n") for path in SOURCES if "_generated" not in path.stem
    }
    long = {file: lines for file, lines in lengths.items() if lines > FILE_LINES}
    assert not long, f"split these by what they know: {long}"


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return (n for n in statements(tree) if isinstance(n, kinds))


def test_a_function_can_be_read_at_once() -> None:
    long = [
        f"{name(path)}:{f.lineno} {f.name}: {(f.end_lineno or 0) - f.lineno + 1} lines"
        for path in PYTHON
        for f in functions(tree_of(path))
        if (f.end_lineno or 0) - f.lineno + 1 > FUNCTION_LINES
    ]
    assert not long, long


CORE_FUNCTION = re.compile(
    r"^(?P<indent>\s*)(?:async\s+)?(?:def|cdef|cpdef)\s+"
    r"(?!class|extern|enum|struct|packed|union)[^=]*?(?P<name>\w+)\("
)


def core_functions(lines: list[str]) -> Iterator[tuple[str, int]]:
    """The functions of a ``.pyx`` file with their lengths; declarations without a body are none."""
    for start, line in enumerate(lines):
        match = CORE_FUNCTION.match(line)
        if match is None:
            continue
        head, depth = start, 0
        while (depth := depth + lines[head].count("(") - lines[head].count(")")) > 0:
            head += 1
        if not lines[head].split("#")[0].rstrip().endswith(":"):
            continue
        last = head
        for number in range(head + 1, len(lines)):
            if lines[number].strip():
                if len(lines[number]) - len(lines[number].lstrip()) <= len(match["indent"]):
                    break
                last = number
        yield match["name"], last - start + 1


def test_a_function_of_the_core_can_be_read_at_once() -> None:
    found = [
        (f"{path.name} {function}", length)
        for path in CYTHON
        for function, length in core_functions(text_of(path).splitlines())
    ]
    assert len(found) > 1000
    long = {key: n for key, n in found if n > LONG_IN_THE_CORE.get(key, FUNCTION_LINES)}
    assert not long, long
    lengths = dict(sorted(found, key=lambda row: row[1]))
    done = [key for key, n in LONG_IN_THE_CORE.items() if lengths.get(key, 0) != n]
    assert not done, f"shorter than their limit now; lower it or take it out: {done}"


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in OURS:
        for node in statements(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                yield path, node


def test_a_class_has_few_enough_methods_to_know_them() -> None:
    many = {
        f"{name(path)} {node.name}": count
        for path, node in classes()
        if (count := sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in node.body))
        > CLASS_METHODS
    }
    assert not many, f"give a part of these to a class that they have: {many}"


def fields_of(node: ast.ClassDef) -> set[str]:
    """The fields that the methods of a class assign, and those that its body declares."""
    found = {
        n.target.id
        for n in node.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= {
                n.attr
                for n in ast.walk(method)
                if isinstance(n, ast.Attribute)
                and isinstance(n.ctx, ast.Store)
                and isinstance(n.value, ast.Name)
                and n.value.id == "self"
            }
    return found


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a plain value: options, settings, a message of an API have the fields of their form."""
    return not any(isinstance(n, ast.FunctionDef) and n.name == "__init__" for n in node.body)


def test_a_class_has_few_enough_fields_to_know_their_owner() -> None:
    counts = {
        f"{name(path)} {node.name}": len(fields_of(node))
        for path, node in classes()
        if not is_record(node)
    }
    core = classes_of(path for path in CYTHON if CORE in path.parents)
    counts |= {f"core {kind}": len(fields) for kind, fields in core.fields.items()}
    assert max(counts.values()) > 30
    many = {kind: count for kind, count in counts.items() if count > CLASS_FIELDS}
    assert not many, f"give fields that change together to a class of their own: {many}"


def test_a_module_says_what_it_is_for() -> None:
    silent = [
        name(path)
        for path in [*OURS, *CYTHON]
        if text_of(path) and not re.match(r'(#[^\n]*\n)*\s*[rR]?"""\S', text_of(path))
    ]
    assert not silent, f"no docstring at the head of {silent}"


def test_lines_of_the_core_fit_a_screen() -> None:
    wide = [
        f"{name(path)}:{number}"
        for path in CYTHON
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if len(line) > CORE_LINE_WIDTH
    ]
    assert not wide, f"wider than {CORE_LINE_WIDTH}: {wide}"


IMPORTED_CORE = re.compile(r"pelton\.core\.(\w+\.\w+)|from pelton\.core\.(\w+) import (.+)")


def core_modules_used_from_python() -> set[str]:
    """The modules of the core that Python imports, each as room.module."""
    used: set[str] = set()
    for path in PYTHON:
        for module, room, names in IMPORTED_CORE.findall(text_of(path)):
            used.update([module] if module else [f"{room}.{n}" for n in re.findall(r"\w+", names)])
    return used


def test_a_module_of_the_core_has_its_declarations_and_its_stub() -> None:
    used = core_modules_used_from_python()
    missing = []
    for path in sorted(CORE.glob("*/*.pyx")):
        declared, stub = path.with_suffix(".pxd").exists(), path.with_suffix(".pyi").exists()
        if not (declared or stub):
            missing.append(f"{path.name} has neither .pxd nor .pyi")
        elif f"{path.parent.name}.{path.stem}" in used and not stub:
            missing.append(f"{path.name} is imported from Python and has no .pyi")
    assert len(used) > 20
    assert not missing, missing


def private_uses(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Where it reaches into another object's underscore names."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and re.match(r"_[^_]", node.attr)
            and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
        ):
            yield node


CLIENT = ROOT / "src/pelton/client"
HALVES = ("pelton.client.aio.", "pelton.client.sync.")


@cache
def parts_of_held_objects() -> frozenset[str]:
    """The private names of what programs get from the client.

    Its modules call them. They are private so that completion offers programs the interface and nothing
    else (tests/client/test_names.py).
    """
    held = [
        kind
        for door in (pelton, pelton.sync)
        for name in vars(door)["__all__"]
        if issubclass(kind := type_of(getattr(door, name)), BaseMessage)
        or kind.__module__.startswith(HALVES)
    ]
    bases = {base.__name__ for kind in held for base in kind.__mro__}
    found: set[str] = {name for kind in held for name in dir(kind)}
    for path in OURS:
        if path.is_relative_to(CLIENT):
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.ClassDef) and node.name in bases:
                    found |= {each.attr for each in ast.walk(node) if is_own(each)}
    return frozenset(name for name in found if re.match(r"_[^_]", name))


def type_of(value: object) -> type:
    """A class itself; ``type(None)`` for anything else."""
    return value if isinstance(value, type) else type(None)


def is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether it is an attribute of ``self``."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def test_modules_keep_out_of_each_others_private_parts() -> None:
    uses = []
    for path in OURS:
        friends = parts_of_held_objects() if path.is_relative_to(CLIENT) else frozenset()
        uses += [
            f"{name(path)}:{node.lineno}"
            for node in private_uses(tree_of(path))
            if node.attr not in friends
        ]
    lines = sum(text_of(p).count("\n") for p in OURS)
    budget = max(2, int(lines / 1000 * PRIVATE_PER_1000_LINES))
    assert len(uses) <= budget, uses


# Warnings of nats-server that name nothing; operators search for its words.
WARNINGS_OF_NATS_SERVER = {
    "Temporary storage directory used, data could be lost on system reboot",
    "Websocket not configured with TLS. DO NOT USE IN PRODUCTION!",
    "Not configured to accept leaf node connections",
}


def warnings_of(tree: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    """The texts of warnings and errors in the server's log, with their lines."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
            target = ast.unparse(call.func.value).rpartition(".")[2].lstrip("_")
            is_log = call.func.attr in {"warn", "error", "fatal"} and target in {"log", "server"}
            if is_log or call.func.attr == "report":
                yield call.lineno, call.args[0]


def test_a_warning_names_the_stream_file_or_client_that_it_is_about() -> None:
    warned, mute = 0, []
    for path in OURS:
        if path.is_relative_to(ROOT / "src/pelton/engine") or path.is_relative_to(
            ROOT / "src/pelton/server"
        ):
            for line, text in warnings_of(tree_of(path)):
                warned += 1
                if isinstance(text, ast.Constant) and text.value not in WARNINGS_OF_NATS_SERVER:
                    mute.append(f"{name(path)}:{line} {text.value!r}")
    assert warned > 60, warned
    assert not mute, f"say in these which stream, consumer, file or client they are about: {mute}"


LEFTOVER = re.compile(
    "|".join(
        ["TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error", "breakpoint" + r"\(\)"]
    )
)
# A folder of somebody's machine has no place in a published file.
SOMEBODYS_PATH = re.compile(
    r"(?<![\w./~}-])/(?:home|root|work|Users|workspace)/\w|/tmp/" + r"dev\b"
)


def is_kept(path: Path) -> bool:
    """Whether it is bytes that nobody wrote: an input that fuzzing found, or a former version's store."""
    return any(each in path.as_posix() for each in ("/tests/fuzz/corpus/", "/tests/store/kept/"))


def test_nothing_is_left_over() -> None:
    found = [
        f"{name(path)}: {match.group()}"
        for path in FILES
        if path.name != "LICENSE" and not is_kept(path)
        for pattern in (LEFTOVER, SOMEBODYS_PATH)
        for match in pattern.finditer(text_of(path))
    ]
    assert not found, found


SUPPRESSION = re.compile(
    r"#\s*(?:type:\s*ignore|noqa)"
    r"(?P<code>\[[\w, -]+\]|:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?(?P<reason>.*)$"
)


def test_a_silenced_check_says_which_and_why() -> None:
    bad = [
        f"{name(path)}:{number}"
        for path in SOURCES
        if path.suffix in {".py", ".pyi"}
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if (match := SUPPRESSION.search(line))
        and not (match["code"] and len(match["reason"].strip(" #-")) > 5)
    ]
    assert not bad, f"a check is silenced without a code or a reason: {bad}"


def test_committed_files_are_small_texts() -> None:
    big = {name(p): p.stat().st_size for p in FILES if p.stat().st_size > COMMITTED_BYTES}
    assert not big
    binary = [name(p) for p in FILES if b"\0" in p.read_bytes()[:4096] and not is_kept(p)]
    assert not binary
