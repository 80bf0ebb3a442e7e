"""The few things a reader asks a server: the state of a stream, the sequence at a time, the end of
a subject.

One connection per process, kept between calls: Spark uses its Python workers again, and a query's
driver side lives as long as the query. A connection made before a fork is not used after it.

Knows nothing of Spark.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.api.times import format_time
from penstock.client.blocking import connect_blocking
from penstock.client.models import ConsumerConfig
from penstock.errors import ApiError, MessageNotFound, NoResponders, PenstockError, StreamNotFound
from penstock.spark.offsets import StreamState
from penstock.spark.options import OptionError

if TYPE_CHECKING:
    from penstock.client.blocking import BlockingClient
    from penstock.client.blocking_jetstream import JetStream
    from penstock.spark.options import Options

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECONNECT_ATTEMPTS = 20
_clients: dict[tuple[object, ...], BlockingClient] = {}


class ReadError(RuntimeError):
    """A stream could not be read; the text says which and why."""


def client_for(options: Options) -> BlockingClient:
    """This process's connection for the servers and credentials of the options; opened when there
    is none.

    Raises :class:`ReadError` when no server takes us.
    """
    key = _key(options)
    client = _clients.get(key)
    if client is None or client.closed:
        for old in [other for other in _clients if other[0] != key[0]]:
            # Of the parent process: dropped, never closed, for the socket is still its own.
            del _clients[old]
        client = _clients[key] = _connect(options)
    return client


def _key(options: Options) -> tuple[object, ...]:
    secrets = (options.user, options.password, options.token, options.creds)
    return (os.getpid(), options.servers, *secrets)


def forget_client(options: Options) -> None:
    """Close this process's connection; the next call opens another."""
    key = _key(options)
    if client := _clients.pop(key, None):
        client.close()


def _connect(options: Options) -> BlockingClient:
    try:
        return connect_blocking(
            options.servers,
            name="penstock spark",
            user=options.user or "",
            password=options.password or "",
            token=options.token or "",
            creds=options.creds or "",
            timeout=options.request_timeout_seconds,
            reconnect_attempts_max=_RECONNECT_ATTEMPTS,
        )
    except ValueError as error:
        raise OptionError(f"option servers: {error}") from None
    except PenstockError as error:
        raise ReadError(f"stream {options.stream}: {error}") from error


def jetstream_for(options: Options) -> JetStream:
    """JetStream over this process's connection."""
    return client_for(options).jetstream(timeout=options.request_timeout_seconds)


def stream_state(options: Options) -> StreamState:
    """What the stream holds now. Raises :class:`ReadError`, also for a stream that is not there."""
    try:
        info = jetstream_for(options).stream_info(options.stream)
    except StreamNotFound:
        raise ReadError(
            f"there is no stream {options.stream} on {', '.join(options.servers)}"
        ) from None
    except NoResponders:
        raise ReadError(f"{', '.join(options.servers)} has no JetStream") from None
    except PenstockError as error:
        raise ReadError(f"stream {options.stream}: {error}") from error
    state = info.state
    # A stream never written to reports 0 and 0.
    first = state.first_seq if state.messages else state.last_seq + 1
    born = format_time(info.created)
    return StreamState(info.config.name, born, first, state.last_seq, state.messages, state.bytes)


def end_of_subject(options: Options, state: StreamState) -> int:
    """The last sequence the subject filter lets through, or that of the stream without a filter."""
    if options.subject is None:
        return state.last_seq
    try:
        found = jetstream_for(options).get_message(options.stream, last_by_subject=options.subject)
    except MessageNotFound:
        return 0
    except PenstockError as error:
        raise ReadError(f"stream {options.stream}: {error}") from error
    return min(found.seq, state.last_seq)


def sequence_at(options: Options, time: datetime) -> int | None:
    """The sequence of the first message stored at or after a time, None when there is none yet.

    Found by way of a consumer that would start there, which every server since 2.9 knows.
    """
    config = ConsumerConfig(
        deliver_policy="by_start_time",
        opt_start_time=(time - EPOCH) // timedelta(microseconds=1) * 1000,
        ack_policy="none",
        mem_storage=True,
        inactive_threshold=5_000_000_000,
    )
    jetstream = jetstream_for(options)
    try:
        state = stream_state(options)
        consumer = jetstream.create_consumer(options.stream, config)
        jetstream.delete_consumer(options.stream, consumer.name)
    except ApiError as error:
        raise ReadError(f"stream {options.stream}: {error}") from error
    first = consumer.delivered.stream_seq + 1
    return first if first <= state.last_seq else None
