"""The gateway as a gRPC server for asyncio: it checks tokens, answers from the store, and sends the
bus to subscribers.

A store belongs to one thread, so the server opens and reads it in a separate thread, some rows at a
time; calls take turns. After a failure the store is opened again by the next call.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from pelton.errors import PeltonError

from ..reasons import UndecodableEventError
from ..store import StoreError
from .answers import ANSWERS, BadRequest
from .feeds import Feeds, TooSlowError
from .methods import MESSAGE_BYTES_MAX, METHODS, SERVICE
from .subscribing import Subscriber
from .tokens import InvalidTokenError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from pelton.client.aio.connection import Client

    from ..store import EventStore
    from .tokens import Caller, TokenVerifier

ROWS_AT_ONCE = 256
OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Pings find subscribers that are gone without closing their connection.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Clients may ping too, also while no event comes: Pelton's do so every 30 s, and gRPC would
    # cut them off after the third time.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
Code = grpc.StatusCode
EXPIRED = "the token has expired: call again with a new one"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerTls:
    """The server's certificate and key as PEM; with ``client_ca`` clients need certificates too."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None

    def credentials(self) -> Any:
        """As gRPC takes them."""
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=self.client_ca,
            require_client_auth=self.client_ca is not None,
        )


def _in_time(auth: Mapping[str, Iterable[bytes]], now_ns: int) -> bool:
    """Whether the client's certificate, if it showed one, is valid at this time.

    gRPC checks the dates in a full handshake only. A client may resume a TLS session of before.
    """
    shown = auth.get("x509_pem_cert", ())
    if not shown:
        return True
    from cryptography.x509 import load_pem_x509_certificate

    return all(
        each.not_valid_before_utc.timestamp()
        <= now_ns / 1e9
        <= each.not_valid_after_utc.timestamp()
        for each in map(load_pem_x509_certificate, shown)
    )


class GatewayServer:
    """Answers the hub's gateway calls; use it in ``async with`` after `start`, or call `stop`."""

    def __init__(
        self,
        open_store: Callable[[], EventStore],
        verifier: TokenVerifier,
        *,
        client: Client | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """``open_store`` is called in the server's thread. Subscriptions need a client of the bus."""
        self.open_store = open_store
        self.verifier = verifier
        self.client = client
        self.clock = clock
        self.port = 0
        self._feeds: Feeds | None = None
        self._store: EventStore | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="gateway-store")
        self._server: Any = None

    async def start(self, address: str = "127.0.0.1:0", *, tls: ServerTls | None = None) -> int:
        """Listen; the port. Raises OSError for the address, StoreError if the store cannot be opened."""
        await self._in_thread(self._opened)
        self._server = grpc.aio.server(options=OPTIONS)
        handlers = {name: self._handler(name) for name in METHODS}
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),)
        )
        try:
            if tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, tls.credentials())
        except RuntimeError as error:
            why = "certificate and key do not fit, or " if tls is not None else ""
            raise OSError(
                f"cannot listen on {address}: {why}the port is taken, or this machine has not the address"
            ) from error
        await self._server.start()
        return self.port

    async def __aenter__(self) -> GatewayServer:
        """The server."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop at once."""
        await self.stop()

    async def stop(self, grace_s: float = 0) -> None:
        """Take no more calls, let those that run end within a time, and close the store."""
        if self._server is not None:
            await self._server.stop(grace_s)
        await self._in_thread(self._forget)
        self._pool.shutdown()

    async def wait(self) -> None:
        """Wait until somebody stops the server."""
        await self._server.wait_for_termination()

    # -- the store's thread ----------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def _opened(self) -> EventStore:
        if self._store is None:
            self._store = self.open_store()
        return self._store

    def _forget(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _begin(self, name: str, owner: str, request: Any) -> Iterator[Any]:
        return ANSWERS[name](self._opened(), owner, request, self.clock())

    # -- calls -----------------------------------------------------------------------------------------

    def _handler(self, name: str) -> Any:
        method = METHODS[name]
        codecs = {
            "request_deserializer": method.request.FromString,
            "response_serializer": method.response.SerializeToString,
        }
        if method.many_requests:
            return grpc.stream_stream_rpc_method_handler(self._subscribe, **codecs)

        async def answer(request: Any, context: Any) -> AsyncIterator[Any]:
            async for each in self._answer(name, request, context):
                yield each

        return grpc.unary_stream_rpc_method_handler(answer, **codecs)

    async def _caller(self, context: Any) -> Caller:
        """The caller that the call's token names; ends the call with UNAUTHENTICATED without one."""
        if not _in_time(context.auth_context(), self.clock()):
            await context.abort(Code.UNAUTHENTICATED, "the client certificate is not valid now")
        given = [v for k, v in context.invocation_metadata() or () if k == "authorization"]
        scheme, _, token = (given[-1] if given else "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            await context.abort(
                Code.UNAUTHENTICATED, "metadata authorization: bearer TOKEN is missing"
            )
        try:
            return self.verifier.caller(token.strip())
        except InvalidTokenError as error:
            await context.abort(Code.UNAUTHENTICATED, str(error))
        raise AssertionError("abort raises")

    async def _answer(self, name: str, request: Any, context: Any) -> AsyncIterator[Any]:
        """The rows of an answer, some at a time, as long as the token is valid."""
        caller = await self._caller(context)
        rows: Iterator[Any] = iter(())
        try:
            rows = await self._in_thread(self._begin, name, caller.owner, request)
            while some := await self._in_thread(lambda: list(islice(rows, ROWS_AT_ONCE))):
                if caller.seconds_left() <= 0:
                    await context.abort(Code.UNAUTHENTICATED, EXPIRED)
                for each in some:
                    yield each
        except BadRequest as error:
            await context.abort(Code.INVALID_ARGUMENT, str(error))
        except UndecodableEventError as error:
            log.error("the store has a damaged event: %s", error)
            await context.abort(Code.DATA_LOSS, f"the store has a damaged event: {error}")
        except (StoreError, sqlite3.Error, OSError) as error:
            log.error("the store cannot be read: %s", error)
            with suppress(Exception):
                await self._in_thread(self._forget)
            await context.abort(Code.UNAVAILABLE, f"the store cannot be read: {error}")
        finally:
            close = getattr(rows, "close", None)
            if close is not None:
                with suppress(RuntimeError):  # the server has stopped, and its thread
                    self._pool.submit(close)

    async def _subscribe(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Events of the bus for every subscription of a call, until the client ends it or its token expires."""
        caller = await self._caller(context)
        if self.client is None:
            await context.abort(Code.UNIMPLEMENTED, "this gateway has no bus to subscribe to")
            return
        if self._feeds is None:
            self._feeds = Feeds(self.client)
        session = Subscriber(self._feeds, caller.owner)
        context.add_done_callback(lambda _: session.close())
        left_s = caller.seconds_left()
        expiry = None
        if left_s < math.inf:
            loop = asyncio.get_running_loop()
            expiry = loop.call_later(max(left_s, 0), session.fail, InvalidTokenError(EXPIRED))
        try:
            async with aclosing(session.answers(requests)) as answers:
                async for answer in answers:
                    yield answer
        except TooSlowError as error:
            await context.abort(
                Code.RESOURCE_EXHAUSTED,
                f"you are too slow, and events are lost: {error}; ask for them with GetEvents",
            )
        except InvalidTokenError as error:
            await context.abort(Code.UNAUTHENTICATED, str(error))
        except PeltonError as error:
            await context.abort(Code.UNAVAILABLE, f"the bus is lost: {error}")
        finally:
            if expiry is not None:
                expiry.cancel()
