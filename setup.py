"""Builds the compiled core: every .pyx below src/pelton/core becomes one extension module.

PELTON_DEBUG=1 builds with bounds checks and debug symbols; PELTON_SANITIZE=1 adds
AddressSanitizer; PELTON_BUILD_JOBS is how many modules are compiled at once (all processors
unless set), PELTON_CFLAGS what the compiler is told last. PELTON_CORE=built says that the modules
lie beside their sources already: an editable install would compile all of them once more.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("PELTON_DEBUG") == "1" or os.environ.get("PELTON_SANITIZE") == "1"
BUILT = os.environ.get("PELTON_CORE") == "built"
SANITIZE = os.environ.get("PELTON_SANITIZE") == "1"
JOBS = int(os.environ.get("PELTON_BUILD_JOBS") or len(os.sched_getaffinity(0)))


# What Cython would put into each module alike (function and iterator types, ...) is here once.
SHARED = "pelton.core._shared"
SHARED_C = "src/pelton/core/_shared.c"


def core_extensions() -> list[Extension]:
    """One extension per module of the core, and the one that all of them share."""
    compile_args = ["-O1", "-g"] if DEBUG else ["-O2", "-g0"]
    compile_args += ["-fno-strict-aliasing", "-Wno-unused-function", "-Wno-sign-compare"]
    compile_args += os.environ.get("PELTON_CFLAGS", "").split()
    link_args = ["-pthread"]
    if SANITIZE:
        compile_args += ["-fsanitize=address", "-fno-omit-frame-pointer"]
        link_args += ["-fsanitize=address"]
    sources = {
        ".".join(path.relative_to("src").with_suffix("").parts): str(path)
        for path in sorted(Path("src/pelton/core").rglob("*.pyx"))
    }
    return [
        Extension(
            name,
            [source],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
        for name, source in {SHARED: SHARED_C, **sources}.items()
    ]


# The guard matters: with several jobs Cython starts processes that may import this file again.
if __name__ == "__main__":
    setup(
        ext_modules=[]
        if BUILT
        else cythonize(
            core_extensions(),
            include_path=["src"],
            nthreads=JOBS if JOBS > 1 else 0,
            shared_utility_qualified_name=SHARED,
            compiler_directives={
                "language_level": 3,
                "boundscheck": DEBUG,
                "wraparound": False,
                "cdivision": True,
                "initializedcheck": DEBUG,
                "nonecheck": DEBUG,
                "infer_types": False,
                "embedsignature": True,
            },
        ),
        options={"build_ext": {"parallel": JOBS}},
    )
