"""The core once more, with sanitizers, beside the normal build.

The C files that Cython made for the normal build are compiled again, so that what is fuzzed is what is shipped, but
for gcc's checks. They go into a package tree of links: the libraries of ``build/asan/pelton/core`` are its own, all else
leads to ``src``. A process that has that folder first on its path, and the sanitizer's library loaded before all
others, runs the instrumented core: `environment` says how.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pelton.core.libraries import LIBRARIES, library_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pelton"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

ADDRESS = ["-fsanitize=address", "-fsanitize-coverage=trace-pc,trace-cmp"]
# Loads and stores of numbers at any address are the house's way, by memcpy; what is not is found here.
UNDEFINED = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
KINDS = {"asan": ADDRESS, "ubsan": UNDEFINED}
# Without optimization: the build takes half of the time, and most of what an input costs is Python's.
FLAGS = ["-O0", "-g1", "-fno-omit-frame-pointer", "-fno-strict-aliasing", "-w", "-fPIC"]
LINK = ["-shared", "-pthread"]

ASAN_OPTIONS = {
    "verify_asan_link_order": 0,  # libcoverage comes first: the sanitizer has empty functions of the same names
    "detect_leaks": 0,  # the interpreter keeps what it has until it ends
    "allocator_may_return_null": 1,  # a request for too much memory is a MemoryError, as without a sanitizer
    "handle_abort": 1,
    "malloc_context_size": 12,
    "quarantine_size_mb": 32,
}


def folder(kind: str = "asan") -> Path:
    return ROOT / "build" / kind


def library(name: str) -> str:
    """The path of one of gcc's own libraries."""
    said = subprocess.run(
        [compiler(), f"-print-file-name={name}"], check=True, capture_output=True, text=True
    )
    return said.stdout.strip()


def compiler() -> str:
    return os.environ.get("CC") or "gcc"


def build(kind: str = "asan", jobs: int | None = None) -> int:
    """Bring the tree up to date; how many modules were compiled. CalledProcessError when one can't be."""
    target = folder(kind) / "pelton"
    (target / "core").mkdir(parents=True, exist_ok=True)
    link(SOURCE, target, {"core", "__pycache__"})
    texts = {".py", ".pyi", ".pxd"}
    link(SOURCE / "core", target / "core", {"__pycache__"}, texts)
    rooms = [path.parent for path in sorted((SOURCE / "core").glob("*/__init__.py"))]
    for room in rooms:
        (target / "core" / room.name).mkdir(exist_ok=True)
        link(room, target / "core" / room.name, {"__pycache__"}, texts)
        for old in (target / "core" / room.name).glob("*.so"):
            old.unlink()  # of a build that had a library for each module
    include = f"-I{sysconfig.get_paths()['include']}"
    objects = {
        source: folder(kind) / "objects" / source.relative_to(SOURCE).with_suffix(".o")
        for source in sorted((SOURCE / "core").rglob("*.c"))
    }
    for made in objects.values():
        made.parent.mkdir(parents=True, exist_ok=True)
    commands = [
        ["-c", *FLAGS, *KINDS[kind], include, str(source), "-o", str(made)]
        for source, made in objects.items()
        if stale(made, source)
    ]
    cover = folder(kind) / "libcoverage.so"
    source = Path(__file__).with_name("coverage.c")
    if stale(cover, source):
        commands.append(["-O2", "-Wall", "-shared", "-fPIC", str(source), "-o", str(cover)])
    with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
        list(pool.map(compile_one, commands))
    for library in LIBRARIES:
        parts = [str(made) for source, made in objects.items() if belongs(source) == library]
        path = target / "core" / (library + SUFFIX)
        if any(stale(path, Path(part)) for part in parts):
            compile_one([*LINK, *KINDS[kind], *parts, "-o", str(path)])
    return len(commands)


def link(source: Path, target: Path, but: set[str], suffixes: set[str] | None = None) -> None:
    """Make `target` a folder of links to what is in `source`, and of nothing else that is a link."""
    wanted = {
        path.name: path
        for path in source.iterdir()
        if path.name not in but and (suffixes is None or path.suffix in suffixes)
    }
    for old in target.iterdir():
        if old.is_symlink() and old.name not in wanted:
            old.unlink()
    for name, path in wanted.items():
        if not (target / name).is_symlink():
            (target / name).symlink_to(path)


def belongs(source: Path) -> str:
    """The library that has the module of a C file."""
    return library_of(".".join(source.relative_to(SOURCE / "core").with_suffix("").parts))


def stale(made: Path, source: Path) -> bool:
    return not made.exists() or made.stat().st_mtime < source.stat().st_mtime


def compile_one(arguments: list[str]) -> None:
    """One call of gcc; its output appears under its name only when it is whole."""
    *rest, made = arguments
    subprocess.run([compiler(), *rest, made + ".part"], check=True)
    os.replace(made + ".part", made)


def environment(kind: str = "asan") -> dict[str, str]:
    """The environment for a Python that is to run the instrumented core."""
    options = ":".join(f"{name}={value}" for name, value in ASAN_OPTIONS.items())
    said = os.environ | {
        "PYTHONPATH": str(folder(kind)),
        "PYTHONMALLOC": "malloc",  # a bytes object ends where it ends, for the sanitizer, too
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PELTON_CORE": kind,
    }
    if kind == "asan":
        said["ASAN_OPTIONS"] = options
        # The C++ library, too: atheris brings it in later, and the sanitizer looks for it at the start only.
        first = [folder(kind) / "libcoverage.so", library("libasan.so"), library("libstdc++.so.6")]
        said["LD_PRELOAD"] = ":".join(map(str, first))
    return said
