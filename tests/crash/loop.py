"""A small file system of its own in a file: it can be full, and its file shows what a power cut
would leave. Needs root and loop devices.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class NotHere(Exception):
    """This machine can't do it; the text says why."""


def run(*command: str) -> None:
    """Run a program that must succeed; NotHere with what it said otherwise."""
    found = shutil.which(command[0], path="/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        raise NotHere(f"no {command[0]} here")
    came = subprocess.run([found, *command[1:]], capture_output=True, text=True, check=False)
    if came.returncode:
        raise NotHere(f"{command[0]}: {came.stderr.strip()}")


def make(image: Path, size_bytes: int) -> None:
    """A file with an empty ext4 in it."""
    with image.open("wb") as file:
        file.truncate(size_bytes)
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0", str(image))


@contextlib.contextmanager
def mounted(image: Path, place: Path, options: str = "") -> Iterator[Path]:
    """The file system in `image` at `place`, for the length of a `with` block."""
    place.mkdir(exist_ok=True)
    run("mount", "-o", f"loop{',' if options else ''}{options}", str(image), str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=False)
        if place.is_mount():
            subprocess.run(["umount", "-l", str(place)], check=True)
