"""Speed and memory of the record log: `PYTHONPATH=src python bench/bench_log.py [messages]`.

Wants an in-place build. Prints nanoseconds per message. The loops are compiled
(bench/log_loops.pyx) so that the log is measured, not Python.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from Cython.Build import cythonize
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

HERE = Path(__file__).parent


def build_loops(folder: str) -> ModuleType:
    """Compile log_loops.pyx into a folder and import it."""
    extension = Extension("log_loops", [str(HERE / "log_loops.pyx")], extra_compile_args=["-O2"])
    source = cythonize(
        [extension], include_path=[str(HERE.parent / "src")], build_dir=folder, quiet=True
    )
    command = build_ext(Distribution({"ext_modules": source}))
    command.build_lib = command.build_temp = folder
    command.ensure_finalized()
    command.run()
    path = next(Path(folder).glob("log_loops*.so"))
    spec = importlib.util.spec_from_file_location("log_loops", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anonymous_bytes() -> int:
    """Anonymous memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def timed(label: str, n: int, work: Callable[..., Any], *args: object) -> Any:
    """Run once, print nanoseconds per message."""
    start = time.perf_counter()
    result = work(*args)
    took = time.perf_counter() - start
    print(f"{label:<52} {took / n * 1e9:9.1f} ns/msg {took * 1e3:9.1f} ms", flush=True)
    return result


def plain(loops: ModuleType, folder: str, n: int) -> None:
    """One subject, 128 bytes."""
    body = b"x" * 128
    before = anonymous_bytes()
    log = open_log(f"{folder}/plain")
    few = 3000
    timed(
        "file: append, no write (by subject)",
        few,
        loops.append,
        log,
        few,
        b"orders.new",
        body,
        False,
        0,
    )
    log.flush()
    timed(
        "file: append, no write (by id)", few, loops.append, log, few, b"orders.new", body, True, 0
    )
    log.flush()
    timed("file: append, a write per 500", n, loops.append, log, n, b"orders.new", body, False, 500)
    print(f"anonymous memory for {log.msgs} messages: {(anonymous_bytes() - before) / 1e6:.1f} MB")
    total = log.msgs
    timed("file: read all in order", total, loops.read_all, log)
    timed("file: read anywhere", 100_000, loops.read_random, log, 100_000, 7)
    print(f"anonymous memory after reading: {(anonymous_bytes() - before) / 1e6:.1f} MB")
    log.flush()
    del log
    log = timed("file: open after a kill", total, open_log, f"{folder}/plain")
    timed("file: read all in order, after opening", total, loops.read_all, log)
    maintenance.close(log)
    log = timed("file: open after a close", total, open_log, f"{folder}/plain")
    timed("file: remove from the head, a write per 500", total, loops.remove_head, log, total)
    maintenance.destroy(log)
    memory = open_log(None)
    timed("memory: append", n, loops.append, memory, n, b"orders.new", body, False, 0)
    timed("memory: read all", n, loops.read_all, memory)
    timed("memory: remove from the head", n, loops.remove_head, memory, n)
    maintenance.close(memory)


def subjects(loops: ModuleType, folder: str, n: int) -> None:
    """Very many subjects, the newest few of each kept."""
    body = b"x" * 128
    half = n // 2
    for keep in (1, 2):
        for scattered in (False, True):
            before = anonymous_bytes()
            log = open_log(f"{folder}/many")
            label = f"file: {half} subjects, keep {keep}, {'anywhere' if scattered else 'in turn'}"
            timed(label, 3 * n, loops.many_subjects, log, 3 * n, half, keep, body, scattered)
            used = (anonymous_bytes() - before) / 1e6
            print(f"  {log.msgs} messages, {log.subject_count} subjects, {used:.1f} MB anonymous")
            if keep == 1 and not scattered:
                log.flush()
                maintenance.close(log)
                log = timed("file: open that after a close", log.msgs, open_log, f"{folder}/many")
                wanted = bytes(k % 1000 == 0 for k in range(half))
                timed(
                    "file: one subject of 1000 by the index",
                    log.msgs,
                    loops.scan_wanted,
                    log,
                    wanted,
                )
            maintenance.destroy(log)


def main() -> None:
    """Everything, in a folder under TMPDIR that is removed."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    folder = tempfile.mkdtemp(prefix="bench-log-")
    try:
        loops = build_loops(folder)
        plain(loops, folder, n)
        subjects(loops, folder, n)
    finally:
        shutil.rmtree(folder)
    os._exit(0)


if __name__ == "__main__":
    main()
