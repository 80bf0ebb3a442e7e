"""Builds the compiled core: the .pyx files below src/pelton/core, linked into two libraries.

`pelton.core.libraries` says which module is in which library, and imports it from there. On a platform that is not
Linux only the portable library is built.

Without a compiler, and with PELTON_PURE=1, nothing is compiled, and clients use the twins in `pelton.core.plain`.

PELTON_DEBUG=1 builds with bounds checks and debug symbols; PELTON_SANITIZE=1 adds AddressSanitizer; PELTON_BUILD_JOBS
is how many modules are compiled at once (all processors unless set); PELTON_CFLAGS has more options for the compiler.
PELTON_CORE=built says that the libraries lie in src already: an editable install would compile all of them once more.
PELTON_CORE=required makes a build without them fail, as it does with --inplace.
"""

import os
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SANITIZE = os.environ.get("PELTON_SANITIZE") == "1"
DEBUG = os.environ.get("PELTON_DEBUG") == "1" or SANITIZE
PURE = os.environ.get("PELTON_PURE") == "1"
BUILT = os.environ.get("PELTON_CORE") == "built"
REQUIRED = os.environ.get("PELTON_CORE") == "required"
KIND = "sanitize" if SANITIZE else "debug" if DEBUG else "release"


def processors() -> int:
    """How many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


JOBS = int(os.environ.get("PELTON_BUILD_JOBS") or processors())

CORE = Path("src/pelton/core")
library_of = runpy.run_path(str(CORE / "libraries.py"))["library_of"]

# What Cython would put into each module alike (function and iterator types, ...) is here once.
SHARED = "pelton.core._shared"

# Modules that run once per message or once per turn are compiled for speed, all others for size: a third smaller.
FAST = {
    "core": {"_shared"},
    "base": {"buffer", "deadlines", "highway_hash", "maps", "s2"},
    "broker": {"event_loop", "leaf", "reactor", "receivers", "router", "session"},
    "bulk": {"cbor", "columns", "header_maps", "protobuf", "publish_window", "wire_columns"},
    "consumer": {
        "ack_journal",
        "api_subjects",
        "delivery",
        "pacing",
        "pending",
        "pull_delivery",
        "pull_requests",
        "push_delivery",
    },
    "load": {"crowd", "roles"},
    "log": {
        "counts",
        "cursor",
        "encryption",
        "files",
        "log",
        "read_windows",
        "record",
        "scan",
        "segment",
        "segment_list",
        "segment_reader",
        "subject_index",
        "subject_table",
        "tail",
    },
    "protocol": {
        "headers",
        "json_scan",
        "permissions",
        "publish_headers",
        "subject_nodes",
        "subjects",
        "wire",
    },
    "stream": {
        "atomic_batch",
        "committer",
        "dedupe",
        "direct_get",
        "fast_batch",
        "interest",
        "listeners",
        "puback_queue",
        "publish",
        "source_copy",
    },
}


def is_fast(source: str) -> bool:
    """Whether a module is compiled for speed, given its C file."""
    path = Path(source)
    return path.stem in FAST.get(path.parent.name, ())


def libraries() -> list[Extension]:
    """The libraries that this platform can have, with the sources of their modules."""
    sources: dict[str, list[str]] = {"_portable": [f"{CORE.as_posix()}/_shared.c"], "_linux": []}
    for path in sorted(CORE.rglob("*.pyx")):
        module = ".".join(path.relative_to(CORE).with_suffix("").parts)
        sources[library_of(module)].append(path.as_posix())
    if sys.platform != "linux":
        del sources["_linux"]
    return [Extension(f"pelton.core.{name}", files) for name, files in sources.items()]


def module_of(source: str) -> str:
    """The name of the module that a source file below src is of."""
    return ".".join(Path(source).relative_to("src").with_suffix("").parts)


class BuildLibraries(build_ext):
    """Compiles the modules that changed, several at once, and links the libraries."""

    def finalize_options(self) -> None:
        """Say whether an installation may be without the libraries."""
        super().finalize_options()
        for extension in self.extensions:
            extension.optional = not REQUIRED and not (self.inplace and not self.editable_mode)

    def build_extensions(self) -> None:
        """Make C files of the Cython sources, then the libraries of these."""
        if self.extensions:
            self.translate()
            self.remove_single_modules()
        for extension in self.extensions:
            with self._filter_build_errors(extension):
                self.build_extension(extension)

    def translate(self) -> None:
        """Make C files of all sources that changed; an extension has these afterwards."""
        from Cython.Build import cythonize

        # Cython compares times only: C files that a build of another kind left are made again.
        kind = Path("build/kind")
        checks = str(DEBUG)
        made = cythonize(
            [
                Extension(module_of(file), [file])
                for each in self.extensions
                for file in each.sources
            ],
            include_path=["src"],
            nthreads=JOBS if JOBS > 1 else 0,
            force=(kind.read_text() if kind.exists() else str(False)) != checks or None,
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
        )
        kind.parent.mkdir(exist_ok=True)
        kind.write_text(checks)
        c_files = {module.name: module.sources[0] for module in made}
        for each in self.extensions:
            each.sources = [c_files[module_of(file)] for file in each.sources]

    def build_extension(self, ext: Extension) -> None:
        """Compile what is newer than its object, and link the library."""
        unix = self.compiler.compiler_type == "unix"
        folders = {
            fast: os.path.join(self.build_temp, KIND, "fast" if fast else "small")
            for fast in (True, False)
        }

        def object_of(source: str) -> str:
            folder = folders[is_fast(source)]
            return self.compiler.object_filenames([source], output_dir=folder)[0]

        def compile_one(source: str) -> None:
            fast = is_fast(source)
            self.compiler.compile(
                [source],
                output_dir=folders[fast],
                extra_postargs=compile_arguments(fast) if unix else [],
            )

        stale = [each for each in ext.sources if self.force or is_newer(each, object_of(each))]
        stale.sort(key=os.path.getsize, reverse=True)  # a long one last would be alone
        with ThreadPoolExecutor(JOBS if unix else 1) as pool:
            list(pool.map(compile_one, stale))
        self.compiler.link_shared_object(
            [object_of(each) for each in ext.sources],
            self.get_ext_fullpath(ext.name),
            libraries=self.get_libraries(ext),
            export_symbols=self.get_export_symbols(ext),
            extra_postargs=link_arguments() if unix else [],
            build_temp=self.build_temp,
        )

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """The init functions of the modules in a library."""
        return [f"PyInit_{Path(source).stem}" for source in ext.sources]

    def remove_single_modules(self) -> None:
        """Remove libraries of one module, which older builds made: they would be found first."""
        for core in (CORE, Path(self.build_lib, "pelton", "core")):
            for old in (*core.glob("*/*.so"), *core.glob("_shared.*.so")):
                old.unlink()


def is_newer(source: str, made: str) -> bool:
    """Whether a source was changed after `made`, or that is not there."""
    return not os.path.exists(made) or os.path.getmtime(source) > os.path.getmtime(made)


def compile_arguments(fast: bool) -> list[str]:
    """What gcc or clang is told for one module."""
    arguments = ["-O1", "-g"] if DEBUG else ["-O2" if fast else "-Os", "-g0"]
    arguments += ["-fvisibility=hidden", "-fno-strict-aliasing"]
    arguments += ["-Wno-unused-function", "-Wno-sign-compare"]
    arguments += os.environ.get("PELTON_CFLAGS", "").split()
    if SANITIZE:
        arguments += ["-fsanitize=address", "-fno-omit-frame-pointer"]
    return arguments


def link_arguments() -> list[str]:
    """What they are told for a library."""
    return ["-pthread", *(["-fsanitize=address"] if SANITIZE else [])]


# The guard matters: with several jobs Cython starts processes that may import this file again.
if __name__ == "__main__":
    setup(ext_modules=[] if BUILT or PURE else libraries(), cmdclass={"build_ext": BuildLibraries})
