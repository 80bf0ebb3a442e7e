"""Who may import whom: the layers as a table, checked against what the source says.

Python modules are read with `ast`. The compiled core is read line by line: `import`, `cimport`
and `cdef extern`.
"""

import ast
import gc
import re
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from pelton.core.libraries import PORTABLE
from tests.owners import classes_of, foreign_assignments
from tests.statements import statements

SOURCE = Path(__file__).parents[1] / "src" / "pelton"

VALUES = {"errors", "nuid", "nkeys", "vault"}
BASE = VALUES | {"core"}
SHARED = BASE | {"api"}
CLIENT_SIDE = SHARED | {"client"}

# Component -> the components it may import. A component is a folder or module directly under
# src/pelton.
MAY_IMPORT: dict[str, set[str]] = {
    "": {"exports", "sync", "client", "api", "errors"},  # pelton/__init__.py: names for programs
    "exports": set(),
    "sync": {"exports", "client"},  # those for blocking code
    "core": set(),
    **dict.fromkeys(VALUES, BASE),
    "api": BASE,
    "arrow": BASE,
    "engine": SHARED,
    "client": SHARED | {"exports"},  # for the text of an error
    "server": SHARED | {"engine"},
    "store": SHARED | {"engine"},
    "spark": CLIENT_SIDE | {"arrow"},
    "sql": CLIENT_SIDE | {"arrow", "engine", "store"},
    "pipeline": CLIENT_SIDE | {"spark"},
    "kombu": CLIENT_SIDE,
    "opentelemetry": CLIENT_SIDE | {""},  # its version
    "apply": CLIENT_SIDE,
    "plgd": CLIENT_SIDE | {"spark"},
    "embedded": CLIENT_SIDE | {"engine", "server", "store"},
    "cli": CLIENT_SIDE
    | {
        "arrow",
        "engine",
        "server",
        "store",
        "spark",
        "sql",
        "pipeline",
        "embedded",
        "apply",
        "plgd",
    },
    "testing": CLIENT_SIDE
    | {"engine", "server", "store", "spark", "sql", "pipeline", "embedded", "cli", "apply", "plgd"},
}

# Time, disk, network and randomness are handed in to these.
PURE = VALUES | {"api", "engine", "apply"}
WORLD = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uvloop",
}
# These read the wall clock without importing `time`.
CLOCK_CALLS = {"now", "utcnow", "today"}
# Executors of Spark and the pipeline's sinks run in plain threads.
NO_EVENT_LOOP = PURE | {"spark"}

# The rooms of the core, bottom up: a room imports modules of itself and of the rooms named here.
ROOMS: dict[str, set[str]] = {
    "base": set(),
    "protocol": {"base"},
    "bulk": {"base", "protocol"},
    "load": {"base", "protocol", "bulk"},
    "broker": {"base", "protocol"},
    "log": {"base", "protocol", "bulk"},
    "stream": {"base", "protocol", "broker", "log"},
    "consumer": {"base", "protocol", "broker", "log", "stream"},
}

# The rooms of the client, and its modules that both halves use, bottom up, likewise.
CLIENT_ROOMS: dict[str, set[str]] = {
    "base": set(),
    "protocol": {"base"},
    "session": {"base", "protocol"},
    "groups": {"base"},
    "publishing": {"base"},
    "stored": {"base"},
    "batches": {"base"},
    "services": {"base"},
    "consume": {"base", "session"},
    "keyvalue": {"base", "stored"},
    "objects": {"base", "consume"},
}
CLIENT_SHELLS = {"aio", "sync"}  # import all rooms, and never each other

# The rooms of the engine, bottom up, likewise; engine/engine.py imports all.
ENGINE_ROOMS: dict[str, set[str]] = {
    "base": set(),
    "files": set(),
    "rules": {"base"},
    "sources": {"base", "files"},
    "config": {"base", "sources"},
    "account": {"base", "files", "rules", "config"},
    "lifecycles": {"base", "files", "rules", "sources", "config", "account"},
    "backups": {"base", "files", "config", "account", "lifecycles"},
    "calls": {"base", "config", "account", "lifecycles", "backups"},
}

# The modules of the core that are made for a part of the world; all others get it handed in.
CORE_WORLD = {
    "base.clock": {"posix", "time", "time.h"},
    "base.disk": {"os", "shutil", "posix", "fcntl.h", "sys/stat.h", "unistd.h"},
    "base.readonly_disk": {"os"},
    # declarations for the two loops alone
    "base.linux": {
        "pthread.h",
        "sys/epoll.h",
        "sys/socket.h",
        "sys/timerfd.h",
        "time.h",
        "unistd.h",
    },
    "broker.event_loop": {"pelton.core.base.linux", "os"},
    "load.crowd": {"pelton.core.base.linux"},
    "base.syncs": {"pelton.core.base.linux"},
    "broker.reactor": {"unistd.h"},  # fdatasync in place, where there are no sync threads
    # of `os`: the texts of errno and the names of paths
    "log.files": {"os"},
    "log.unsynced_files": {"os"},
    "stream.committer": {"os"},
}
C_WORLD = {
    "pelton.core.base.linux",
    "posix",
    "fcntl.h",
    "netinet/in.h",
    "netinet/tcp.h",
    "pthread.h",
    "sys/epoll.h",
    "sys/eventfd.h",
    "sys/random.h",
    "sys/socket.h",
    "sys/stat.h",
    "sys/time.h",
    "sys/timerfd.h",
    "time.h",
    "unistd.h",
}

PYTHON_FILES = sorted(SOURCE.rglob("*.py"))
CORE_FILES = sorted([*SOURCE.glob("core/*/*.pyx"), *SOURCE.glob("core/*/*.pxd")])


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text())


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    """The trees of all files are millions of objects: nobody looks for garbage among them, and none stays."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


def component(path: Path) -> str:
    """The component that a source file belongs to."""
    parts = path.relative_to(SOURCE).parts
    first = parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def names_types(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:`: what it imports is there for names of types only."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def imported(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module name that a Python file imports, absolute; for `from a import b` that is a.b."""
    package = ["pelton", *path.relative_to(SOURCE).parts[:-1]]
    for node in statements(tree, leave_out=names_types):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def of_ours(name: str) -> str | None:
    """The component of ours that an import names ("" for the package itself), or None."""
    top, *rest = name.split(".")
    if top != "pelton":
        return None
    if len(rest) == 1 and rest[0] not in MAY_IMPORT:
        return "" if rest[0] == "__version__" else "client"  # what pelton/__init__.py has of it
    return rest[0] if rest else ""


def test_a_module_imports_only_what_lies_below_it() -> None:
    bad = []
    for path in PYTHON_FILES:
        mine = component(path)
        assert mine in MAY_IMPORT, f"{path}: a new component; give {mine!r} its place in MAY_IMPORT"
        allowed = MAY_IMPORT[mine] | {mine, ""}
        bad += [
            f"{path.relative_to(SOURCE)}:{line} imports {name}"
            for line, name in imported(path, tree_of(path))
            if (target := of_ours(name)) is not None and target not in allowed
        ]
    assert len(PYTHON_FILES) > 1
    assert not bad, bad


def test_code_of_ours_imports_a_name_from_the_module_that_defines_it() -> None:
    """``pelton`` and ``pelton.sync`` are for programs: they are above everything else."""
    doors = {"__init__.py", "sync.py"}
    bad = []
    for path in PYTHON_FILES:
        if str(path.relative_to(SOURCE)) in doors:
            continue
        for node in ast.walk(tree_of(path)):  # also what is imported for types only
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = {alias.name for alias in node.names}
                door = node.module == "pelton.sync" or (
                    node.module == "pelton" and not names <= {*MAY_IMPORT, "__version__"}
                )
                bad += [f"{path.relative_to(SOURCE)}:{node.lineno}"] if door else []
    assert not bad, bad


def reads_the_clock(node: ast.AST) -> bool:
    """Whether this is a call such as ``datetime.now()``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCK_CALLS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"datetime", "date"}
    )


def test_a_pure_module_gets_the_world_handed_in() -> None:
    bad = []
    for path in PYTHON_FILES:
        if component(path) not in NO_EVENT_LOOP:
            continue
        pure = component(path) in PURE
        banned = WORLD if pure else {"asyncio", "uvloop"}
        where = path.relative_to(SOURCE)
        bad += [
            f"{where}:{line} imports {name}"
            for line, name in imported(path, tree_of(path))
            if name.split(".")[0] in banned
        ]
        if pure:
            bad += [
                f"{where}:{getattr(node, 'lineno', 0)} reads the clock"
                for node in ast.walk(tree_of(path))
                if reads_the_clock(node)
            ]
    assert not bad, bad


IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(.+)|c?import\s+([\w., ]+))")
EXTERN = re.compile(r"^\s*cdef extern from\s+[\"']<?([\w./]+)>?[\"']")


def core_module(path: Path) -> str:
    """A module of the core by its room and name: ``log.segment``."""
    return f"{path.parent.name}.{path.stem}"


ROOM = re.compile(r"pelton\.core(\.\w+)?")


def core_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module and C header that a file of the core imports, cimports or declares.

    ``from pelton.core.log import files, scan`` names modules: that is one of each name.
    """
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if match := IMPORT.match(line):
            if match[1] and ROOM.fullmatch(match[1]):
                names, following = match[2].split("#")[0], number
                while "(" in names and ")" not in names:
                    names += " " + lines[following].split("#")[0]
                    following += 1
                for name in names.strip(" ()").split(","):
                    if name.strip():
                        yield number, f"{match[1]}.{name.split()[0]}"
            elif match[1]:
                yield number, match[1]
            else:
                yield from ((number, name.strip().split(" ")[0]) for name in match[3].split(","))
        elif match := EXTERN.match(line):
            yield number, match[1]


def part_of_the_world(name: str) -> str:
    """The name that CORE_WORLD and C_WORLD use for a module or header."""
    if name == "libc.time":
        return "time.h"
    if name.startswith("pelton.core.base.linux"):
        return "pelton.core.base.linux"
    return name if name.endswith(".h") else name.split(".")[0]


def test_the_core_knows_nothing_above_it() -> None:
    bad = [
        f"{core_module(path)}:{line} {name}"
        for path in CORE_FILES
        for line, name in core_imports(path)
        if name.split(".")[0] == "pelton" and not name.startswith("pelton.core")
    ]
    assert not bad, bad


def test_only_the_modules_made_for_it_touch_the_world() -> None:
    bad = [
        f"{core_module(path)}:{line} {name}"
        for path in CORE_FILES
        for line, name in core_imports(path)
        if part_of_the_world(name) in (WORLD | C_WORLD) - CORE_WORLD.get(core_module(path), set())
    ]
    assert not bad, bad


def test_a_portable_module_needs_nothing_of_linux() -> None:
    """It names no header or module of the system, and no module of the other library."""
    portable = {path: core_module(path) for path in CORE_FILES if core_module(path) in PORTABLE}
    bad = [
        f"{name}:{line} {found}"
        for path, name in portable.items()
        for line, found in core_imports(path)
        if part_of_the_world(found) in WORLD | C_WORLD
        or (found.startswith("pelton.core.") and not of_the_core([found]) <= PORTABLE)
    ]
    assert set(portable.values()) == PORTABLE - {"_portable", "_shared"}
    assert not bad, bad


def test_a_twin_needs_nothing_of_linux() -> None:
    twins = sorted(SOURCE.glob("core/plain/*.py"))
    found = {name.split(".")[0] for path in twins for _, name in imported(path, tree_of(path))}
    assert not found & (WORLD | {"fcntl", "resource", "termios", "msgspec"})


def of_the_core(names: Iterable[str]) -> set[str]:
    """The modules of the core among some names, each by its room and name."""
    return {
        ".".join(name.split(".")[2:4])
        for name in names
        if name.startswith("pelton.core.") and name.count(".") > 2
    }


def test_the_modules_of_the_core_form_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in CORE_FILES:
        names = of_the_core(name for _, name in core_imports(path))
        graph.setdefault(core_module(path), set()).update(names - {core_module(path)})
    for path in SOURCE.glob("core/*/*.py"):
        names = of_the_core(name for _, name in imported(path, tree_of(path)))
        graph.setdefault(core_module(path), set()).update(names)
    assert "log.lost" in graph
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules of the core that import each other: {error.args[1]}")
    assert order, "no module of the core was found"


def module(path: Path) -> str:
    """The name of a module in Python."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(["pelton", *(part for part in parts if part != "__init__")])


def circle(paths: Iterable[Path]) -> list[str]:
    """Modules that import each other when they run, also inside functions; [] if there are none."""
    names = {module(path): path for path in paths}
    graph = {
        name: {
            found
            for _, each in imported(path, tree_of(path))
            if each != "pelton.__version__"  # it is there before the package imports anything
            and (found := each if each in names else each.rpartition(".")[0]) in names
        }
        - {name}
        for name, path in names.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_form_no_circle() -> None:
    assert not circle(PYTHON_FILES)


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("def late():\n    from pelton.one import name\n", {"pelton.one", "pelton.two"}),
        ("if TYPE_CHECKING:\n    from pelton.one import name\n", set()),
    ],
)
def test_the_check_sees_a_circle_through_a_function(
    second: str, found: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.test_layers.SOURCE", tmp_path)
    (tmp_path / "one.py").write_text("from . import two\n")
    (tmp_path / "two.py").write_text(second)
    assert set(circle(tmp_path.glob("*.py"))) == found


def test_a_room_of_the_core_imports_only_the_rooms_below_it() -> None:
    assert {path.parent.name for path in CORE_FILES} == set(ROOMS)
    order = list(TopologicalSorter(ROOMS).static_order())
    assert order, "the rooms form a circle"
    rooms = ROOMS | {"plain": set()}  # twins import twins
    python = SOURCE.glob("core/*/*.py")
    imports = [(path, line, name) for path in CORE_FILES for line, name in core_imports(path)]
    imports += [
        (path, line, name) for path in python for line, name in imported(path, tree_of(path))
    ]
    bad = [
        f"{core_module(path)}:{line} {name}"
        for path, line, name in imports
        if name.startswith("pelton.core.")
        and name.split(".")[2] not in rooms[path.parent.name] | {path.parent.name}
    ]
    assert not bad, bad


def upward(
    package: str, below: dict[str, set[str]], above: Iterable[str]
) -> tuple[set[str], list[str]]:
    """The rooms of a package, and their imports of rooms that are not below; modules named in `above` import all."""
    files = [path for path in PYTHON_FILES if component(path) == package]
    rooms = {
        path: path.relative_to(SOURCE / package).parts[0].removesuffix(".py") for path in files
    }
    found = [
        f"{module(path)}:{line} {name}"
        for path, room in rooms.items()
        if room not in above
        for line, name in imported(path, tree_of(path))
        if name.startswith(f"pelton.{package}.") and name.split(".")[2] not in below[room] | {room}
    ]
    return set(rooms.values()), found


@pytest.mark.parametrize(
    ("package", "rooms", "above"),
    [
        ("engine", ENGINE_ROOMS, {"__init__", "engine"}),
        ("client", CLIENT_ROOMS | {s: set(CLIENT_ROOMS) for s in CLIENT_SHELLS}, {"__init__"}),
    ],
)
def test_a_room_of_a_package_imports_only_the_rooms_below_it(
    package: str, rooms: dict[str, set[str]], above: set[str]
) -> None:
    assert list(TopologicalSorter(rooms).static_order()), "the rooms form a circle"
    there, found = upward(package, rooms, above)
    assert there == {*rooms, *above}
    assert not found, found


def test_the_table_and_the_texts_name_what_is_there() -> None:
    there = {component(path) for path in PYTHON_FILES}
    assert set(MAY_IMPORT) == there
    page = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text()
    pictures = {
        "pelton/__init__.py": (SOURCE / "__init__.py").read_text(),
        "ARCHITECTURE.md": page[: page.index("## ")],
    }
    for name, text in pictures.items():
        levels = "\n".join(re.findall(r"^ +level \d(.*)$", text, re.MULTILINE))
        drawn = set(re.findall(r"\w+", re.sub(r"\(.*?\)|—.*", "", levels)))
        assert drawn == there - {""}, name


def test_the_architecture_names_what_is_there() -> None:
    """Every name in code type is a file, a folder, or a word of the source or of the tests."""
    root = SOURCE.parents[1]
    paths = [
        path
        for top in ("src", "tests", "tools", "docs", "bench")
        for path in (root / top).rglob("*")
        if path.suffix in {".py", ".pyx", ".pxd", ".md"} or path.is_dir()
    ]
    words = {word for path in paths for word in re.findall(r"\w+", str(path.relative_to(root)))}
    page = (root / "ARCHITECTURE.md").read_text()
    named = {
        word
        for quoted in re.findall(r"`([^`\n]+)`", page)
        if " " not in quoted
        for word in re.findall(r"[A-Za-z_]\w{2,}", quoted)
    }
    assert len(named) > 100
    for path in [root / "Makefile", *paths]:
        if named <= words:
            break
        if path.is_file() and path.suffix in {".py", ".pyx", ".pxd", ""}:
            words.update(re.findall(r"\w+", path.read_text()))
    assert named <= words, f"ARCHITECTURE.md names what is not there: {sorted(named - words)}"


def test_nothing_but_tests_imports_testing() -> None:
    assert all(
        "testing" not in allowed for name, allowed in MAY_IMPORT.items() if name != "testing"
    )


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("from pelton.client.aio import connect", False),
        ("from pelton import connect", False),
        ("from pelton.sync import connect", False),
        ("import pelton.server.app", False),
        ("from ..server import app", False),
        ("from pelton.api import types", True),
        ("from pelton import __version__", True),
        ("def f():\n    import pelton.cli", False),
    ],
)
def test_the_check_sees_every_way_to_import(source: str, allowed: bool) -> None:
    found = imported(SOURCE / "engine" / "example.py", ast.parse(source))
    targets = {target for _, name in found if (target := of_ours(name)) is not None}
    assert (targets <= MAY_IMPORT["engine"] | {""}) is allowed


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from pelton.core.log.scan cimport Scan", ["pelton.core.log.scan"]),
        (
            "def f():\n    from pelton.core.log import files, scan as s  # both",
            ["pelton.core.log.files", "pelton.core.log.scan"],
        ),
        (
            "from pelton.core.log import (\n    files,\n    scan,\n)",
            ["pelton.core.log.files", "pelton.core.log.scan"],
        ),
        ("from pelton.core import log", ["pelton.core.log"]),
        ("cimport pelton.core.log.scan as s", ["pelton.core.log.scan"]),
    ],
)
def test_the_check_sees_every_way_to_import_in_the_core(
    source: str, names: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "example.pyx"
    path.write_text(source)
    assert [name for _, name in core_imports(path)] == names


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_the_state_of_a_class_is_changed_by_its_owner(room: str) -> None:
    """Only the module of a class assigns to its fields; the others call its methods."""
    classes = classes_of(CORE_FILES)
    files = [path for path in CORE_FILES if path.parent.name == room]
    found = [
        f"{path.name}:{line} {target} ({owner})"
        for path in files
        for line, target, owner in foreign_assignments(path, classes)
    ]
    assert {
        "Log",
        "LogFiles",
        "Segment",
        "PublishPath",
        "Draft",
        "PullRequest",
    } <= classes.module.keys()
    assert not found, found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("cdef int f(Segment s) except -1:\n    s.live -= 1", ["s.live"]),
        (
            "def f(Log log):\n    log.tail.base = log.tail.written = 0",
            ["log.tail.base", "log.tail.written"],
        ),
        (
            "def f(Log log, list many):\n    (<Segment>many[0]).size = 1",
            ["(<Segment>many[0]).size"],
        ),
        (
            "cdef int f() except -1:\n    cdef Segment s = Segment()\n    s.entries[0].size = 1",
            ["s.entries[0].size"],
        ),
        ("def f(log: Log):\n    if log.live == 0 and g(a=1):\n        return log.live", []),
        ("cdef int f(Head head):\n    head.live = 1", []),
        ("cdef class Other:\n    cdef int g(self):\n        self.live = 1", []),
        (
            "cdef class Other(Log):\n    cdef int g(self):\n        self.tail.base = 1",
            ["self.tail.base"],
        ),
    ],
)
def test_the_check_sees_every_way_to_assign(source: str, found: list[str], tmp_path: Path) -> None:
    declared = tmp_path / "owner.pxd"
    declared.write_text(
        "cdef class Segment:\n    cdef int live, size\n    cdef Entry* entries\n"
        "cdef class Tail:\n    cdef int base\n    cdef int written\n"
        "cdef class Log:\n    cdef readonly Tail tail\n    cdef int live\n"
    )
    path = tmp_path / "example.pyx"
    path.write_text(source)
    classes = classes_of([declared, path])
    assert [target for _, target, _ in foreign_assignments(path, classes)] == found
