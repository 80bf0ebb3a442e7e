"""The servers that every scenario of this folder runs against."""

from collections.abc import Iterator

import pytest

from tests.compat.twins import Twins, twins
from tests.peers import ServerProcess, available_servers, running_server


@pytest.fixture(
    scope="module",
    params=["pelton", pytest.param("nats-server", marks=pytest.mark.peer)],
)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Our server, then nats-server where one is installed; the same test body runs against both."""
    if request.param == "nats-server" and request.param not in available_servers(oldest=(2, 9)):
        pytest.skip("no nats-server on this machine (NATS_SERVER, PATH, /usr/sbin)")
    with running_server(request.param) as process:
        yield process


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """The ports of our server and of the one it is compared with."""
    with running_server("pelton") as ours, running_server("nats-server") as theirs:
        yield ours.port, theirs.port


@pytest.fixture
def client(ports: tuple[int, int]) -> Iterator[Twins]:
    """A client of both; the inbox of pulls is subscription 2, that of `Scene.fill` is "stored"."""
    with twins(*ports) as both:
        both.say("SUB in.* 2\r\nSUB $JS.EVENT.ADVISORY.CONSUMER.> 3\r\nSUB stored stored\r\n")
        yield both
        both.settle()
        for name in both.made:
            both.theirs.delete_stream(name)
            both.ours.delete_stream(name)
