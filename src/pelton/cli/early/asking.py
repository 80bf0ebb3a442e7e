"""Requests in the dialects of 2019 and 2020, to a Pelton server or to any other.

A server that does not know the dialects has no responder on their subjects. Then the table of
`api/dialects` translates here, and the server gets calls of today's API.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pelton.api.codec import decode_response
from pelton.api.dialects.requests import Call, converse
from pelton.errors import NoRespondersError, PeltonError, PeltonTimeoutError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pelton.client import sync
    from pelton.client.sync.messages import Message

TIMEOUT_SECONDS = 5.0
DEFAULT_URL = "nats://127.0.0.1:4222"


class Failed(PeltonError):
    """A tool cannot do its work; str() is the line that it prints."""


def connect(
    servers: str, creds: str = "", cert: str = "", key: str = "", ca: str = ""
) -> sync.Client:
    """A client of the servers, a list with commas, by default those of NATS_URL. ConnectError: none
    of them answers.
    """
    from pelton.client import sync
    from pelton.client.base.addresses import TlsOptions, parse_servers
    from pelton.client.protocol.options import Options

    tls = TlsOptions(cert_file=cert, key_file=key, ca_file=ca) if cert or key or ca else None
    options = Options(
        servers=parse_servers(servers or os.environ.get("NATS_URL") or DEFAULT_URL),
        creds=creds,
        tls=tls,
        reconnect=False,
        connect_timeout=TIMEOUT_SECONDS,
    )
    return sync.connect(options)


def ask(client: sync.Client, subject: str, body: bytes = b"") -> bytes:
    """The answer to a request of a dialect. PeltonTimeoutError: there is none."""
    try:
        return receive(client, subject, body, TIMEOUT_SECONDS).data
    except NoRespondersError:
        conversation = converse(subject, body)
        if conversation is None:
            raise PeltonTimeoutError("timeout") from None
    given = None
    while True:
        try:
            wish = conversation.send(given)
        except StopIteration as end:
            answer: bytes = end.value
            return answer
        given = None
        if isinstance(wish, Call):
            try:
                got = receive(client, f"$JS.API.{wish.subject}", wish.body, TIMEOUT_SECONDS)
            except NoRespondersError:
                raise PeltonTimeoutError("timeout") from None
            given = decode_response(wish.response, got.data)


def receive(
    client: sync.Client,
    subject: str,
    body: bytes,
    seconds: float,
    headers: Mapping[str, Sequence[str]] | None = None,
) -> Message:
    """The first answer to a request, which may come on any subject. PeltonTimeoutError, NoRespondersError."""
    inbox = client.new_inbox()
    subscription = client.subscribe(inbox)
    try:
        client.publish(subject, body, reply=inbox, headers=headers)
        message = subscription.next(seconds)
        if message is None:
            raise PeltonTimeoutError(f"no answer from {subject!r} in {seconds} s")
        if not message.data and message.raw_headers.startswith(b"NATS/1.0 503"):
            raise NoRespondersError(subject)
        return message
    finally:
        subscription.unsubscribe()


def pull(client: sync.Client, stream: str, consumer: str) -> Message:
    """The next message of a pull consumer. PeltonTimeoutError: there is none."""
    try:
        return receive(client, f"$JS.RN.{stream}.{consumer}", b"1", 1.0)
    except NoRespondersError:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
    try:
        return receive(client, subject, b'{"batch":1,"expires":900000000}', 1.0)
    except NoRespondersError:
        raise PeltonTimeoutError("timeout") from None
