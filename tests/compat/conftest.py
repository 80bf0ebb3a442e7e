"""The servers that every scenario of this folder runs against."""

from collections.abc import Iterator

import pytest

from tests.peers import ServerProcess, available_servers, running_server


@pytest.fixture(
    scope="module",
    params=["penstock", pytest.param("nats-server", marks=pytest.mark.peer)],
)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Our server, then nats-server where one is installed; the same test body runs against both."""
    if request.param == "nats-server" and request.param not in available_servers(oldest=(2, 9)):
        pytest.skip("no nats-server on this machine (NATS_SERVER, PATH, /usr/sbin)")
    with running_server(request.param) as process:
        yield process
