"""A server of every kind there is, and a way to run a command line in this process."""

from __future__ import annotations

import io
import json
import sys
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pelton.cli.__main__ import main
from tests.peers import ServerProcess, available_servers, running_server
from tests.server.configured import configured
from tests.ways import take_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Ran(NamedTuple):
    """What a command line has done."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON documents on the lines of stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a command asks of a server hardly depends on its options."""
    take_turns(items, "tests/cli/")


@pytest.fixture(scope="session", params=available_servers())
def peer(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """One server for all tests; they must not stop it, and use names of their own."""
    with running_server(request.param) as process:
        yield process


_WITH_SYSTEM = """
listen: 127.0.0.1:@port
server_name: bertha
jetstream { store_dir: "%s" }
accounts {
    $SYS { users: [ { user: admin, password: secret } ] }
    A { jetstream: enabled, users: [ { user: anna, password: secret } ] }
}
no_auth_user: anna
"""


class WithSystem(NamedTuple):
    """A server with a system account: the URLs of a user in it, and of one in account A."""

    system: str
    plain: str


@pytest.fixture(scope="session", params=available_servers())
def bertha(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WithSystem]:
    """One server with a system account for all tests, with the name bertha; they must not stop it."""
    folder = tmp_path_factory.mktemp("bertha")
    with configured(request.param, _WITH_SYSTEM % folder) as running:
        address = f"127.0.0.1:{running.ports['port']}"
        yield WithSystem(f"nats://admin:secret@{address}", f"nats://{address}")


@pytest.fixture
def unique() -> str:
    """A name nobody else uses."""
    return f"T{uuid.uuid4().hex[:12]}"


@pytest.fixture
def cli(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ran]:
    """Run a command line in this process, without a user's own contexts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*arguments: object, stdin: bytes | None = None) -> Ran:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        status = main([str(each) for each in arguments])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Ran(status, out.decode("utf-8", "surrogateescape"), err.decode())

    return run


@pytest.fixture
def at(
    cli: Callable[..., Ran], peer: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Run a command line in this process with the server."""
    monkeypatch.setenv("NATS_URL", peer.url)
    return cli
