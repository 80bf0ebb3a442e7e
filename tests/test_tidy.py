"""House rules that a tool can hold: sizes, docstrings, companions of the core, leftovers.

The limits are ratchets: they may be lowered, and raised only with a reason beside them.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "src" / "penstock" / "core"

FILE_LINES = 600
FUNCTION_LINES = 70
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
OURS = [p for p in PYTHON if (ROOT / "src") in p.parents]
CYTHON = [p for p in FILES if p.suffix in {".pyx", ".pxd"}]
SOURCES = [
    p
    for p in FILES
    if p.suffix in {".py", ".pyi", ".pyx", ".pxd", ".c", ".h"} and p.name != "setup.py"
]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_lists_are_not_empty() -> None:
    assert len(OURS) > 1
    assert len(CYTHON) > 1


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_file_holds_one_idea(path: Path) -> None:
    if "_generated" in path.stem:
        return
    lines = path.read_text().count("\n")
    assert lines <= FILE_LINES, f"{name(path)} has {lines} lines: split it by what it knows"


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_a_function_can_be_read_at_once(path: Path) -> None:
    tree = ast.parse(path.read_text())
    lengths = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions(tree)}
    assert not {f: n for f, n in lengths.items() if n > FUNCTION_LINES}


@pytest.mark.parametrize("path", [*OURS, *CYTHON], ids=name)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert not text or re.match(r'(#[^\n]*\n)*\s*[rR]?"""\S', text), (
        f"{name(path)} has no docstring at its head"
    )


@pytest.mark.parametrize("path", CYTHON, ids=name)
def test_lines_of_the_core_fit_a_screen(path: Path) -> None:
    wide = [
        i for i, line in enumerate(path.read_text().splitlines(), 1) if len(line) > CORE_LINE_WIDTH
    ]
    assert not wide, f"{name(path)}: lines {wide} are wider than {CORE_LINE_WIDTH}"


IMPORTED_CORE = re.compile(r"penstock\.core\.(\w+)|from penstock\.core import (.+)")


def core_modules_used_from_python() -> set[str]:
    used: set[str] = set()
    for path in PYTHON:
        for module, names in IMPORTED_CORE.findall(path.read_text()):
            used.update([module] if module else re.findall(r"\w+", names))
    return used


@pytest.mark.parametrize("path", sorted(CORE.glob("*.pyx")), ids=name)
def test_a_module_of_the_core_has_its_declarations_and_its_stub(path: Path) -> None:
    declared, stub = path.with_suffix(".pxd").exists(), path.with_suffix(".pyi").exists()
    assert declared or stub, f"{name(path)} has neither .pxd nor .pyi"
    if path.stem in core_modules_used_from_python():
        assert stub, f"{name(path)} is imported from Python and has no .pyi"


def private_uses(tree: ast.AST) -> Iterator[int]:
    """Lines that reach into another object's underscore names."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and re.match(r"_[^_]", node.attr)
            and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
        ):
            yield node.lineno


def test_modules_keep_out_of_each_others_private_parts() -> None:
    uses = [f"{name(p)}:{line}" for p in OURS for line in private_uses(ast.parse(p.read_text()))]
    lines = sum(p.read_text().count("\n") for p in OURS)
    budget = max(2, int(lines / 1000 * PRIVATE_PER_1000_LINES))
    assert len(uses) <= budget, uses


LEFTOVER = re.compile(
    "|".join(
        ["TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error", "breakpoint" + r"\(\)"]
    )
)
# A folder of somebody's machine has no place in a published file.
SOMEBODYS_PATH = re.compile(
    r"(?<![\w./~}-])/(?:home|root|work|Users|workspace)/\w|/tmp/" + r"dev\b"
)


def is_kept_input(path: Path) -> bool:
    """Whether it is an input that fuzzing found: bytes that nobody wrote."""
    return "/tests/fuzz/corpus/" in path.as_posix()


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.name != "LICENSE" and not is_kept_input(p)], ids=name
)
def test_nothing_is_left_over(path: Path) -> None:
    text = path.read_text(errors="replace")
    found = [m.group() for pattern in (LEFTOVER, SOMEBODYS_PATH) for m in pattern.finditer(text)]
    assert not found, f"{name(path)}: {found}"


SUPPRESSION = re.compile(
    r"#\s*(?:type:\s*ignore|noqa)"
    r"(?P<code>\[[\w, -]+\]|:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?(?P<reason>.*)$"
)


@pytest.mark.parametrize("path", [p for p in SOURCES if p.suffix in {".py", ".pyi"}], ids=name)
def test_a_silenced_check_says_which_and_why(path: Path) -> None:
    bad = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = SUPPRESSION.search(line)
        if match and not (match["code"] and len(match["reason"].strip(" #-")) > 5):
            bad.append(number)
    assert not bad, f"{name(path)}: lines {bad} silence a check without a code or a reason"


def test_committed_files_are_small_texts() -> None:
    big = {name(p): p.stat().st_size for p in FILES if p.stat().st_size > COMMITTED_BYTES}
    assert not big
    binary = [name(p) for p in FILES if b"\0" in p.read_bytes()[:4096] and not is_kept_input(p)]
    assert not binary
