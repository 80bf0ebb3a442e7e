"""A restore does not take the server's memory, whatever an archive decompresses to."""

import json
from pathlib import Path

import pytest

from pelton.client.sync import Client
from pelton.sync import connect
from tests.engine.bombs import MIB, bombs, half_a_record
from tests.peers import ServerProcess, running_server

MOST_BYTES = 64 * MIB
"""More than before, at any time: blocks of 4 MiB on their way, and what the allocator keeps of them."""


@pytest.mark.peer
def test_an_archive_of_kilobytes_does_not_become_gigabytes_of_memory() -> None:
    with running_server("pelton") as server, connect(server.url) as client:
        send(client, begin(client, "S"), b"no archive")
        before = memory(server, "VmRSS")
        for what, data in bombs().items():
            error = send(client, begin(client, "S"), data)["error"]
            assert isinstance(error, dict), what
            assert error["err_code"] == 10062, (what, error)
            grown = memory(server, "VmHWM") - before
            assert grown < MOST_BYTES, (what, error, grown // MIB)
        assert not list(Path(server.store).rglob("restoring/*"))


@pytest.mark.peer
def test_nor_do_many_at_once() -> None:
    with running_server("pelton") as server, connect(server.url) as client:
        send(client, begin(client, "S"), b"no archive")
        before = memory(server, "VmRSS")
        for n in range(200):
            subject = begin(client, f"S{n}")
            client.request(subject, half_a_record(f"S{n}", MIB), timeout=60)
        grown = memory(server, "VmHWM") - before
        assert grown < 2 * MOST_BYTES, grown // MIB


def begin(client: Client, stream: str) -> str:
    """Where the chunks of a restore go."""
    body = json.dumps({"config": {"name": stream, "subjects": [f"{stream}.>"]}, "state": {}})
    answer = client.request(f"$JS.API.STREAM.RESTORE.{stream}", body.encode(), timeout=20)
    subject: str = json.loads(answer.data)["deliver_subject"]
    return subject


def send(client: Client, subject: str, data: bytes) -> dict[str, object]:
    """How a restore ends."""
    for at in range(0, len(data) + 1, 60_000):
        if said := client.request(subject, data[at : at + 60_000], timeout=60).data:
            break
    else:
        said = client.request(subject, b"", timeout=60).data
    found: dict[str, object] = json.loads(said)
    return found


def memory(server: ServerProcess, name: str) -> int:
    """Bytes, of a line of /proc/<pid>/status."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024
