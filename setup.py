"""Builds the compiled core: every src/penstock/core/*.pyx becomes one extension module.

PENSTOCK_DEBUG=1 builds with bounds checks, C asserts and debug symbols; PENSTOCK_SANITIZE=1 adds AddressSanitizer.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("PENSTOCK_DEBUG") == "1" or os.environ.get("PENSTOCK_SANITIZE") == "1"
SANITIZE = os.environ.get("PENSTOCK_SANITIZE") == "1"

compile_args = ["-O1", "-g"] if DEBUG else ["-O2", "-g0"]
compile_args += ["-fno-strict-aliasing", "-Wno-unused-function", "-Wno-unreachable-code"]
link_args: list[str] = []
if SANITIZE:
    compile_args += ["-fsanitize=address", "-fno-omit-frame-pointer"]
    link_args += ["-fsanitize=address"]

extensions = [
    Extension(
        f"penstock.core.{path.stem}",
        [str(path)],
        include_dirs=["src/penstock/core"],
        extra_compile_args=compile_args,
        extra_link_args=[*link_args, "-pthread"],
    )
    for path in sorted(Path("src/penstock/core").glob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        include_path=["src"],
        nthreads=int(os.environ.get("PENSTOCK_BUILD_JOBS", "0")),
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
    )
)
