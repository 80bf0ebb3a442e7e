"""libFuzzer, by way of atheris, over one target: ``python -m tests.fuzz.engine TARGET [options of libFuzzer] [folders]``.

Called by tests/fuzz/__main__ in a process that runs the instrumented core. Atheris instruments Python's byte code; the
compiled core counts its blocks in libcoverage, which is shown to the same libFuzzer here.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

COMPARISONS = [f"trace_{kind}{size}" for kind in ("cmp", "const_cmp") for size in (1, 2, 4, 8)]
# Python modules whose coverage guides: what decides about bytes from outside in Python.
GUIDING = ["pelton.api", "pelton.engine", "pelton.server", "pelton.nkeys"]


def attach(coverage: ctypes.CDLL) -> None:
    """Tell libFuzzer of the core's counters, and the core of libFuzzer's comparisons."""
    found = importlib.util.find_spec("atheris.core_with_libfuzzer")
    assert found is not None
    assert found.origin is not None
    fuzzer = ctypes.CDLL(found.origin)
    functions = [
        ctypes.cast(getattr(fuzzer, f"__sanitizer_cov_{name}"), ctypes.c_void_p)
        for name in [*COMPARISONS, "trace_switch"]
    ]
    table = (ctypes.c_void_p * len(functions))(*(function.value for function in functions))
    coverage.coverage_attach(
        fuzzer.__sanitizer_cov_8bit_counters_init, fuzzer.__sanitizer_cov_pcs_init, table
    )


def again(name: str) -> str:
    """The path of a program that does the same: libFuzzer calls itself to minimise a corpus."""
    path = Path(os.environ["PYTHONPATH"]) / f"engine-{name}"
    command = f'exec "{sys.executable}" -m tests.fuzz.engine {name} "$@"'
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return str(path)


def guided() -> AbstractContextManager[None]:
    """While this lasts, the byte code of imported modules that guide is instrumented."""
    import atheris

    manager: AbstractContextManager[None] = atheris.instrument_imports(
        include=GUIDING, enable_loader_override=False
    )
    return manager


def prepared(name: str) -> Target:
    """A target, after some of its seeds: these import what is imported by what first needs it."""
    from tests.fuzz import targets

    target = targets.load(name)
    for seed in itertools.islice(target.seeds(), 10):
        target.run(seed)
    return target


def search(target: Target, options: list[str]) -> None:
    """Run libFuzzer with these options and folders; it ends the process."""
    import atheris

    atheris.Setup([again(target.name), *options], target.run, internal_libfuzzer=True)
    path = Path(os.environ["PYTHONPATH"]) / "libcoverage.so"
    attach(ctypes.CDLL(str(path)))
    atheris.Fuzz()


def main() -> None:
    name, *options = sys.argv[1:]
    with guided():  # all the time: some modules are imported late
        search(prepared(name), options)


if __name__ == "__main__":
    main()
