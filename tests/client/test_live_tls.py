"""TLS of the client against real servers: certificates of its own, a handshake before INFO."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pelton import TlsOptions, connect
from pelton.errors import ConnectError
from tests.certificates import Authority
from tests.client.test_live_secured import echo_aio, echo_blocking
from tests.peers import OLDEST, available_servers
from tests.server.configured import Configured, configured

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.peer
echoes = pytest.mark.parametrize("echo", [echo_blocking, echo_aio])
kinds = pytest.mark.parametrize("kind", available_servers(OLDEST))


def config(authority: Authority, more: str) -> str:
    issued = authority.server()
    return f"""listen: 127.0.0.1:@port
        tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}"
               ca_file: "{authority.ca_file}", {more} }}"""


def url(server: Configured, scheme: str = "nats") -> str:
    return f"{scheme}://localhost:{server.ports['port']}"


@echoes
@kinds
def test_a_certificate_of_its_own(kind: str, echo: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = authority.client("mine")
    with configured(kind, config(authority, "verify: true")) as server:
        shown = TlsOptions(
            ca_file=authority.ca_file, cert_file=mine.cert_file, key_file=mine.key_file
        )
        assert echo(url(server), tls=shown) == b"x"
        assert echo(url(server, "tls"), tls=shown) == b"x"
        with pytest.raises(ConnectError, match=r"asks its clients for a certificate|TLS"):
            echo(url(server), tls=TlsOptions(ca_file=authority.ca_file), reconnect=False)


@echoes
@kinds
def test_the_handshake_comes_first(kind: str, echo: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with configured(kind, config(authority, "handshake_first: true")) as server:
        first = TlsOptions(ca_file=authority.ca_file, first=True)
        assert echo(url(server), tls=first) == b"x"
        late = TlsOptions(ca_file=authority.ca_file)
        with pytest.raises(ConnectError):
            echo(url(server), tls=late, reconnect=False, connect_timeout=0.5)


@echoes
@kinds
def test_either_order_where_the_server_waits_a_moment(kind: str, echo: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with configured(kind, config(authority, "handshake_first: auto")) as server:
        for first in (True, False):
            options = TlsOptions(ca_file=authority.ca_file, first=first)
            assert echo(url(server), tls=options) == b"x"


@kinds
@pytest.mark.parametrize("more", ["timeout: 5", "handshake_first: true"])
def test_a_handshake_that_fails_leaves_nothing_running(
    kind: str, more: str, tmp_path: Path
) -> None:
    """The certificate of an authority that the client does not trust."""
    authority = Authority(tmp_path)
    complaints: list[Any] = []

    async def run(address: str) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        before = asyncio.all_tasks()
        first = "first" in more
        for _ in range(3):
            with pytest.raises(ConnectError, match=r"TLS handshake failed|verify failed"):
                await connect(address, tls=TlsOptions(first=first))
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        assert complaints == []

    with configured(kind, config(authority, more)) as server:
        asyncio.run(run(url(server)))
