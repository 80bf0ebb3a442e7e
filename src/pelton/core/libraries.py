"""The two libraries that the compiled modules are linked into, and the finder that imports from them.

A hundred small shared libraries would take twice the space and a noticeable part of a start. Each module
keeps its name: Python asks `Finder` for ``pelton.core.log.log``, and gets it from ``_linux``.

- ``_portable``: clients, the command line and Spark use these modules; any platform with a C compiler has them.
- ``_linux``: the server's modules and the loads of ``pelton bench``, which need epoll, timerfd and Linux's disk calls.

`setup.py` reads this file, so it imports nothing of the package.
"""

import os
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec

CORE = "pelton.core."

PORTABLE = frozenset(
    {
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


class Finder:
    """Finds the compiled modules; one of these is on ``sys.meta_path``, behind the finders for files."""

    def __init__(self, folder: str) -> None:
        """`folder` is that of ``pelton.core``."""
        self._paths = {library: library_path(folder, library) for library in LIBRARIES}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of a compiled module, or None for any other name."""
        if not name.startswith(CORE):
            return None
        library = self._paths[library_of(name.removeprefix(CORE))]
        if library is None:
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, library), origin=library)
        spec.has_location = True
        return spec
