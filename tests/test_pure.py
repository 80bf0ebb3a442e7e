"""What the quick look runs connects to nothing."""

import socket

import pytest

from tests.peers import free_port
from tests.pure import CLIENT, FOLDERS, LEFT_OUT, ROOT, files, without_connections


def test_the_files_are_there() -> None:
    chosen = files()
    assert [name for name in chosen if not (ROOT / name).is_file()] == []
    assert [name for name in LEFT_OUT if not (ROOT / name).is_file()] == []
    assert {f"tests/client/test_{name}.py" for name in CLIENT} <= set(chosen)
    assert [
        folder for folder in FOLDERS if not any(name.startswith(folder) for name in chosen)
    ] == []


def test_a_connection_is_refused_by_name() -> None:
    address = ("127.0.0.1", free_port())
    with (
        socket.socket() as ours,
        pytest.raises(RuntimeError, match="one connects to"),
        without_connections("one"),
    ):
        ours.connect(address)


@pytest.mark.slow  # so that it may connect
def test_other_tests_may_connect() -> None:
    with (
        socket.create_server(("127.0.0.1", free_port())) as server,
        socket.create_connection(server.getsockname()),
    ):
        pass
    first, second = socket.socketpair()
    with first, second, without_connections("two"):
        first.sendall(b"x")
        assert second.recv(1) == b"x"
