"""The two libraries that the compiled modules are linked into, and the finder that imports from them.

A hundred small shared libraries would take twice the space and a noticeable part of a start. Each module
keeps its name: Python asks `Finder` for ``pelton.core.log.log``, and gets it from ``_linux``.

- ``_portable``: clients, the command line and Spark use these modules; any platform with a C compiler has them.
- ``_linux``: the server's modules and the loads of ``pelton bench``, which need epoll, timerfd and Linux's disk calls.

Without ``_portable``, and with PELTON_PURE=1 in the environment, `pelton.core.plain` has the modules that a client
uses. `setup.py` reads this file, so it imports nothing of the package.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from types import ModuleType

CORE = "pelton.core."

PORTABLE = frozenset(
    {
        "_portable",
        "_shared",
        "base.buffer",
        "base.maps",
        "base.s2",
        "protocol.headers",
        "protocol.json_scan",
        "protocol.overlaps",
        "protocol.subject_nodes",
        "protocol.subjects",
        "protocol.wire",
        "bulk.cbor",
        "bulk.columns",
        "bulk.header_maps",
        "bulk.protobuf",
        "bulk.publish_window",
        "bulk.wire_columns",
    }
)
LIBRARIES = ("_portable", "_linux")
# Of these only compiled modules know.
WITHOUT_TWIN = {"_portable", "_shared", "base.maps", "protocol.subject_nodes"}


def library_of(module: str) -> str:
    """The library that has a compiled module, given its name below ``pelton.core``."""
    return "_portable" if module in PORTABLE else "_linux"


def library_path(folder: str, library: str) -> str | None:
    """The file of a library in `folder`, or None if it was not compiled for this Python."""
    for suffix in EXTENSION_SUFFIXES:
        path = os.path.join(folder, library + suffix)
        if os.path.exists(path):
            return path
    return None


class NoServerError(ImportError):
    """The server's compiled modules are not there; the message says how to have them."""


class Finder:
    """Finds the compiled modules; one of these is on ``sys.meta_path``, behind the finders for files."""

    def __init__(self, folder: str, pure: bool) -> None:
        """`folder` is that of ``pelton.core``; `pure` hides what is compiled."""
        self.portable = None if pure else library_path(folder, "_portable")
        # its modules use those of the other one
        self.linux = library_path(folder, "_linux") if self.portable else None

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of a compiled module or its twin, or None for any other name."""
        if not name.startswith(CORE):
            return None
        module = name.removeprefix(CORE)
        library = self.portable if module in PORTABLE else self.linux
        if library is None:
            return self._without(name, module)
        spec = ModuleSpec(name, ExtensionFileLoader(name, library), origin=library)
        spec.has_location = True
        return spec

    def _without(self, name: str, module: str) -> ModuleSpec | None:
        """The spec of a module's twin."""
        if module not in PORTABLE:
            raise NoServerError(no_server(), name=name)
        return None if module in WITHOUT_TWIN else ModuleSpec(name, TwinLoader())  # type: ignore[arg-type]  # it has what is called


class TwinLoader:
    """Loads ``pelton.core.plain.wire`` under the name of the compiled module."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The twin itself."""
        return import_module(f"{CORE}plain.{spec.name.rpartition('.')[2]}")

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it is complete."""


def require_server() -> None:
    """Raise NoServerError unless the server's compiled modules are there."""
    finders = [finder for finder in sys.meta_path if isinstance(finder, Finder)]
    if sys.platform != "linux" or any(finder.linux is None for finder in finders):
        raise NoServerError(no_server())


def no_server() -> str:
    """Why the server's modules are not there, and what to do, in one line."""
    if sys.platform != "linux":
        return (
            "the server, its stores and the loads of pelton bench need Linux: run them in a container "
            "or in WSL; clients on this system connect as usual"
        )
    if os.environ.get("PELTON_PURE") == "1":
        return "the server is compiled, and PELTON_PURE=1 hides what is: unset it"
    return (
        "the server's compiled modules are missing: install a C compiler and Python's headers, then "
        "run pip install --force-reinstall --no-cache-dir --no-binary pelton pelton"
    )
