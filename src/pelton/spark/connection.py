"""Connections to servers, and the state of a stream.

Each process keeps one connection between calls: Spark reuses its Python workers, and the driver side
of a query lives as long as the query. A connection that was made before a fork is not used after it.

Does not depend on Spark.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pelton.api.times import format_time
from pelton.client.base.addresses import TlsOptions, parse_servers
from pelton.client.protocol.options import Options as ClientOptions
from pelton.client.sync import connect
from pelton.errors import NoRespondersError, PeltonError, StreamNotFoundError
from pelton.spark.parsing import OptionError
from pelton.spark.reading.offsets import StreamState

if TYPE_CHECKING:
    from pelton.client.base.models import StreamInfo
    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream
    from pelton.spark.servers import Servers

_clients: dict[tuple[int, Servers], Client] = {}


class ReadError(RuntimeError):
    """A stream could not be read; the text says which and why."""


class StreamMissingError(ReadError):
    """The stream does not exist on the servers."""


def client_for(servers: Servers) -> Client:
    """This process's connection to the servers; opens one when there is none.

    Raises :class:`ReadError` when no server accepts the connection.
    """
    key = (os.getpid(), servers)
    client = _clients.get(key)
    if client is None or client.closed:
        for old in [other for other in _clients if other[0] != key[0]]:
            # A connection of the parent process is dropped but never closed: the parent uses the
            # socket.
            del _clients[old]
        client = _clients[key] = _connect(servers)
    return client


def forget_client(servers: Servers) -> None:
    """Close this process's connection; the next call opens another."""
    if client := _clients.pop((os.getpid(), servers), None):
        client.close()


def forget_all() -> None:
    """Close all connections of this process that are kept; the next calls open others."""
    for process, servers in list(_clients):
        if process == os.getpid():
            forget_client(servers)


def client_options(servers: Servers, *, reconnects: int | None = None) -> ClientOptions:
    """The servers as options of the client; ValueError for an invalid address.

    ``reconnects``: how often to try a server whose connection broke; None: for ``retryTimeout``.
    """
    if reconnects is None:
        reconnects = _attempts_in(servers.retry_timeout_seconds)
    return ClientOptions(
        servers=parse_servers(servers.urls),
        name="pelton spark",
        user=servers.user or "",
        password=servers.password or "",
        token=servers.token or "",
        creds=servers.creds or "",
        nkey=servers.nkey or "",
        jwt=servers.jwt or "",
        tls=_tls(servers),
        timeout=servers.request_timeout_seconds,
        reconnect_attempts_max=reconnects,
        inbox_prefix=servers.inbox_prefix or "_INBOX",
    )


def _attempts_in(seconds: float) -> int:
    """How many attempts to reconnect, each waiting longer than the last, take that long."""
    defaults = ClientOptions()
    attempts, wait = 1, defaults.reconnect_wait
    while (seconds := seconds - wait) > 0:
        attempts, wait = attempts + 1, min(2 * wait, defaults.reconnect_wait_max)
    return attempts


def _connect(servers: Servers) -> Client:
    try:
        return connect(client_options(servers))
    except (ValueError, OSError) as error:
        raise OptionError(f"cannot connect to {servers}: {error}") from None
    except PeltonError as error:
        raise ReadError(f"cannot connect to {servers}: {error}") from error


def _tls(servers: Servers) -> TlsOptions | None:
    given = TlsOptions(
        ca_file=servers.tls_ca,
        cert_file=servers.tls_cert,
        key_file=servers.tls_key,
        hostname=servers.tls_hostname,
        first=servers.tls_first,
    )
    return None if given == TlsOptions() else given


def jetstream_for(servers: Servers) -> JetStream:
    """JetStream over this process's connection, in the domain of the options."""
    return client_for(servers).jetstream(
        domain=servers.domain,
        prefix=servers.api_prefix,
        timeout=servers.request_timeout_seconds,
    )


def stream_info(servers: Servers, stream: str, *, deleted_details: bool = False) -> StreamInfo:
    """The server's information about a stream; with ``deleted_details`` also all its holes.

    Raises :class:`ReadError`; :class:`StreamMissingError` when the stream does not exist.
    """
    try:
        return jetstream_for(servers).stream_info(stream, deleted_details=deleted_details)
    except StreamNotFoundError:
        raise StreamMissingError(f"there is no stream {stream} on {servers}") from None
    except NoRespondersError:
        raise ReadError(f"{servers} has no JetStream") from None
    except (PeltonError, ReadError) as error:
        raise ReadError(f"stream {stream}: {error}") from error


def stream_state(servers: Servers, stream: str) -> StreamState:
    """The current state of the stream; raises as :func:`stream_info`."""
    return state_of(stream_info(servers, stream))


def state_of(info: StreamInfo) -> StreamState:
    """The needed fields of a STREAM.INFO answer."""
    state = info.state
    # A stream without any message yet reports 0 and 0.
    first = state.first_seq if state.messages else state.last_seq + 1
    born = format_time(info.created)
    return StreamState(
        info.config.name,
        born,
        first,
        state.last_seq,
        state.messages,
        state.bytes,
        info.config.retention,
    )
