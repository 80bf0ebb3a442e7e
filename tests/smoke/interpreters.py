"""The Pythons of this machine that the package is for: of the path, of pyenv, and unpacked by tools/get-pythons."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
OLDEST = (3, 11)
UNPACKED = ROOT / ".venv" / "pythons" / "usr" / "bin"
ASK = """
import json, sys, sysconfig
print(json.dumps([sys.version_info[:2], sys.version.split()[0], sys.implementation.name,
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), sys.executable]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python; `name` is such as 3.14 or 3.14t."""

    name: str
    version: str
    path: str

    @property
    def order(self) -> tuple[int, int, bool]:
        """By version; free-threaded builds come behind their own."""
        major, minor = self.name.removesuffix("t").split(".")
        return int(major), int(minor), self.name.endswith("t")


def look(path: str | Path) -> Interpreter | None:
    """The interpreter behind a path, or None when there is none that the package is for."""
    # -I: nothing of the surroundings counts. pyenv's stand-ins fail where no version is chosen.
    command = [str(path), "-I", "-c", ASK]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        pair, version, kind, free, executable = json.loads(said.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if kind != "cpython" or tuple(pair) < OLDEST:
        return None
    kind = "t" if free else ""
    return Interpreter(f"{pair[0]}.{pair[1]}{kind}", f"{version}{kind}", executable)


def places() -> Iterator[str | Path]:
    """Where an interpreter may be; the first one of a version counts."""
    yield Path(sys.base_prefix, "bin", "python3")
    names = [f"python3.{minor}{kind}" for minor in range(OLDEST[1], 20) for kind in ("", "t")]
    yield from (found for name in names if (found := shutil.which(name)))
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    yield from sorted(pyenv.glob("3.*/bin/python3"), reverse=True)
    yield from sorted(UNPACKED.glob("python3.??"))


def interpreters() -> list[Interpreter]:
    """All that are found, by version."""
    found: dict[str, Interpreter] = {}
    for place in places():
        each = look(place)
        if each is not None:
            found.setdefault(each.name, each)
    return sorted(found.values(), key=lambda each: each.order)
