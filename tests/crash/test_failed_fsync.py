"""A real fsync that fails: the system forgets what it could not write, and nothing acked is lost.

The store is an ext4 in a sparse file on a small tmpfs: it takes every write into the page cache, and
when the tmpfs is full what the disk below it was to hold is dropped. Making the tmpfs larger is the
repair. What counts is what is there after a kill and an unmount, when the page cache is gone.

Needs the right to mount loop devices; skipped without.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.crash.load import stored
from tests.crash.wire import Wire
from tests.peers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


class Thin:
    """A file system that promises more than the disk below it has."""

    def __init__(self, folder: Path) -> None:
        self.below, self.top = folder / "below", folder / "top"
        self.below.mkdir()
        self.top.mkdir()
        self.image = self.below / "image"

    def make(self) -> bool:
        """False: there is no right to, or no tools."""
        if shutil.which("mkfs.ext4") is None or shutil.which("mount") is None:
            return False
        if run("mount", "-t", "tmpfs", "-o", "size=6m", "pelton-test", self.below):
            return False
        with self.image.open("wb") as file:
            file.truncate(64 << 20)
        options = ("-q", "-O", "^has_journal", "-E", "lazy_itable_init=1")
        if run("mkfs.ext4", *options, self.image) or self.mount():
            run("umount", self.below)
            return False
        return True

    def mount(self) -> int:
        return run("mount", "-o", "loop,errors=continue", self.image, self.top)

    def remount(self) -> None:
        """The page cache is gone."""
        assert not run("umount", self.top)
        assert not self.mount()

    def repair(self) -> None:
        assert not run("mount", "-o", "remount,size=60m", self.below)

    def remove(self) -> None:
        run("umount", self.top)
        run("umount", self.below)


def run(*command: object) -> int:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, check=False
    ).returncode


@pytest.fixture
def thin(tmp_path: Path) -> Iterator[Thin]:
    made = Thin(tmp_path)
    if not made.make():
        pytest.skip("no right to mount a file system in a file here")
    try:
        yield made
    finally:
        made.remove()


def test_a_failed_fsync_loses_nothing_that_was_acked(thin: Thin) -> None:
    server = ServerProcess("pelton", store=str(thin.top))
    try:
        server.start()
        wire = Wire(server.port, timeout=10)
        wire.ok("STREAM.CREATE.A", {"name": "A", "subjects": ["A"]})
        acked: dict[int, bytes] = {}
        refused, waiting = 0, {}
        for number in range(3000):
            data = b"%d;" % number + os.urandom(20_000)
            wire.publish("A", data, f"p{number}")
            waiting[f"p{number}"] = data
            for event in wire.events(0.3):
                answer = json.loads(event.payload)
                sent = waiting.pop(event.subject)
                if "error" in answer:
                    refused += 1
                    assert (answer["error"]["code"], answer["error"]["err_code"]) == (503, 10077)
                else:
                    acked[answer["seq"]] = sent
            if refused >= 5:
                break
        assert refused >= 5, "the disk below did not become full"
        assert len(acked) > 100
        thin.repair()
        until = time.monotonic() + 20
        while waiting and time.monotonic() < until:  # late, and true
            for event in wire.events(0.5):
                answer = json.loads(event.payload)
                acked[answer["seq"]] = waiting.pop(event.subject)
        assert waiting == {}
        for number in range(20):
            data = b"%d" % number
            acked[wire.request("A", data)["seq"]] = data
        assert sorted(acked) == list(range(1, len(acked) + 1))
        wire.close()
        server.stop(kill=True)
        thin.remount()
        server.start()
        wire = Wire(server.port)
        got = stored(wire, "A", sorted(acked))
        assert sorted(got) == sorted(acked)
        for seq, found in got.items():
            assert base64.b64decode(found["data"]) == acked[seq]
        assert "lost" not in wire.ok("STREAM.INFO.A")["state"]
        wire.close()
    finally:
        server.stop(kill=True)
