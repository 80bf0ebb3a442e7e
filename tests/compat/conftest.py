"""The servers that every scenario of this folder runs against."""

from collections.abc import Iterator

import pytest

from tests.compat.servers import Server, nats_server, penstock_server, running


@pytest.fixture(
    scope="module", params=["penstock", pytest.param("nats-server", marks=pytest.mark.peer)]
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Our server, then nats-server where one is installed; the same test body runs against both."""
    command = penstock_server()
    if request.param == "nats-server":
        peer = nats_server()
        if peer is None:
            pytest.skip("no nats-server on this machine (NATS_SERVER, PATH, /usr/sbin)")
        command = [peer]
    with running(command, tmp_path_factory.mktemp(request.param)) as process:
        yield process
