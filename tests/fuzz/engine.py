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
from pathlib import Path

COMPARISONS = [f"trace_{kind}{size}" for kind in ("cmp", "const_cmp") for size in (1, 2, 4, 8)]
# Python modules whose coverage guides: what decides about bytes from outside in Python.
GUIDING = ["penstock.api", "penstock.engine", "penstock.server", "penstock.nkeys"]


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


def main() -> None:
    name, *options = sys.argv[1:]
    import atheris

    # All the time: some modules are imported by what first needs them.
    with atheris.instrument_imports(include=GUIDING, enable_loader_override=False):
        from tests.fuzz import targets

        target = targets.load(name)
        for seed in itertools.islice(target.seeds(), 10):
            target.run(seed)
        atheris.Setup([again(name), *options], target.run, internal_libfuzzer=True)
        path = Path(os.environ["PYTHONPATH"]) / "libcoverage.so"
        attach(ctypes.CDLL(str(path)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
