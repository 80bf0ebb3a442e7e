"""What a client does while a consumer or stream has no leader: answers that a cluster gives then, by hand."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from pelton import ConsumerConfig, ConsumerInfo, ObjectStoreConfig, sync
from pelton.client.aio.consumers import Consumer
from pelton.client.base.mailbox import RETRY_S
from pelton.client.objects.models import meta_subject
from pelton.client.sync.consumers import Consumer as SyncConsumer
from pelton.errors import NoRespondersError, PullError
from tests.client.shells import Waited, connected
from tests.proxies import running_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.peers import ServerProcess

WAIT_S = 10
MOVED = b"NATS/1.0 409 Leadership Change\r\n\r\n"
STOPS = b"NATS/1.0 409 Server Shutdown\r\n\r\n"
REFUSED = b"NATS/1.0 409 Exceeded MaxRequestBatch of 1\r\n\r\n"
NOBODY = b"NATS/1.0 503\r\n\r\n"


@contextmanager
def playing(url: str, subject: str, *answers: Callable[[Any, str], None]) -> Iterator[list[bytes]]:
    """A server of one subject, which gives these answers one after the other; yields what it was asked."""
    asked: list[bytes] = []
    with sync.connect(url) as client, client.subscribe(subject) as subscription:
        client.flush()

        def answer() -> None:
            for each in answers:
                message = subscription.next(WAIT_S)
                asked.append(message.data)
                each(client, message.reply)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield asked
        thread.join(WAIT_S)


def status(block: bytes) -> Callable[[Any, str], None]:
    def answer(client: Any, reply: str) -> None:
        client._connection.publish(reply, b"", "", block)
        client._flush_output()

    return answer


def message(client: Any, reply: str) -> None:
    client.publish(reply, b"data")


@pytest.mark.parametrize("block", [MOVED, STOPS])
@pytest.mark.parametrize("way", ["pull", "consumer"])
def test_a_fetch_goes_on_with_the_next_leader(
    shell: str, server: ServerProcess, unique: str, way: str, block: bytes
) -> None:
    subject = f"{unique}.CONSUMER.MSG.NEXT.S.c"
    with (
        playing(server.url, subject, status(block), message) as asked,
        connected(shell, server.url) as client,
    ):
        assert [each.data for each in fetched(shell, client, unique, way)] == [b"data"]
    assert len(asked) == 2


@pytest.mark.parametrize("before", [(), (message,)], ids=["none", "one"])
@pytest.mark.parametrize("block", [MOVED, STOPS])
@pytest.mark.parametrize("way", ["pull", "consumer"])
def test_a_fetch_whose_time_is_over_before_there_is_a_leader(
    shell: str, server: ServerProcess, unique: str, way: str, block: bytes, before: tuple[Any, ...]
) -> None:
    """It returns the messages so far, or none: that a leader changes is no error of the fetch."""
    subject = f"{unique}.CONSUMER.MSG.NEXT.S.c"

    def answer(client: Any, reply: str) -> None:
        for each in (*before, status(block)):
            each(client, reply)

    with (
        playing(server.url, subject, answer),
        connected(shell, server.url) as client,
    ):
        found = fetched(shell, client, unique, way, batch=2, timeout=RETRY_S / 2)
    assert [each.data for each in found] == [b"data"] * len(before)


@pytest.mark.parametrize("way", ["pull", "consumer"])
def test_a_fetch_that_is_refused_says_so(
    shell: str, server: ServerProcess, unique: str, way: str
) -> None:
    subject = f"{unique}.CONSUMER.MSG.NEXT.S.c"
    with (
        playing(server.url, subject, status(REFUSED)),
        connected(shell, server.url) as client,
        pytest.raises(PullError, match="Exceeded MaxRequestBatch"),
    ):
        fetched(shell, client, unique, way)


def fetched(
    shell: str, client: Any, prefix: str, way: str, batch: int = 1, timeout: float = WAIT_S
) -> Any:
    js = client.jetstream(prefix=prefix)
    if way == "pull":
        return js.consumer("S", "c", verify=False).fetch(batch, timeout=timeout)
    info = ConsumerInfo(stream_name="S", name="c", config=ConsumerConfig())
    if shell == "blocking":
        return SyncConsumer(js, info).fetch(batch, timeout=timeout)
    return Waited(Consumer(js._inner, info), client._loop).fetch(batch, timeout=timeout)


def test_an_ack_waits_for_the_next_leader(shell: str, server: ServerProcess, unique: str) -> None:
    subject, ack = f"{unique}.CONSUMER.MSG.NEXT.S.c", f"$JS.ACK.{unique}.c.1.1.1.1.0"
    with (
        playing(server.url, subject, message),
        playing(server.url, ack, status(NOBODY), status(b"NATS/1.0\r\n\r\n")) as acks,
        connected(shell, server.url) as client,
    ):
        received = delivered(shell, client, unique, ack)
        clustered(client)
        received.ack_sync(timeout=WAIT_S)
        assert received.acked
    assert acks == [b"+ACK", b"+ACK"]


def test_an_ack_that_nobody_takes_fails_at_once_without_a_cluster(
    shell: str, server: ServerProcess, unique: str
) -> None:
    subject, ack = f"{unique}.CONSUMER.MSG.NEXT.S.c", f"$JS.ACK.{unique}.c.1.1.1.1.0"
    with (
        playing(server.url, subject, message),
        connected(shell, server.url) as client,
    ):
        received = delivered(shell, client, unique, ack)
        with pytest.raises(NoRespondersError):
            received.ack_sync(timeout=WAIT_S)
        assert not received.acked


def test_an_ack_is_sent_again_on_the_next_connection(
    shell: str, server: ServerProcess, unique: str
) -> None:
    def sever(_: Any, __: str) -> None:
        proxy.cut()

    subject, ack = f"{unique}.CONSUMER.MSG.NEXT.S.c", f"$JS.ACK.{unique}.c.1.1.1.1.0"
    with (
        running_proxy(server.port) as proxy,
        playing(server.url, subject, message),
        playing(server.url, ack, sever, status(b"NATS/1.0\r\n\r\n")) as acks,
        connected(shell, proxy.url, reconnect_wait=0.01) as client,
    ):
        received = delivered(shell, client, unique, ack)
        received.ack_sync(timeout=WAIT_S)
    assert acks == [b"+ACK", b"+ACK"]


def test_the_leader_says_whether_there_is_an_object(
    shell: str, server: ServerProcess, unique: str
) -> None:
    """A replica may not know what was stored just now."""
    with sync.connect(server.url) as admin:
        store = admin.jetstream().create_object_store(
            ObjectStoreConfig(bucket=unique, storage="memory")
        )
        store.put("o", b"data")
        subject = meta_subject(unique, "o")
        direct, stream = f"DIRECT.GET.OBJ_{unique}.{subject}", f"STREAM.MSG.GET.OBJ_{unique}"

        def ask_the_leader(client: Any, reply: str) -> None:
            body = b'{"last_by_subj":"%s"}' % subject.encode()
            client.publish(reply, client.request(f"$JS.API.{stream}", body).data)

        with (
            playing(
                server.url, f"{unique}.{direct}", status(b"NATS/1.0 404 Message Not Found\r\n\r\n")
            ),
            playing(server.url, f"{unique}.{stream}", ask_the_leader),
            connected(shell, server.url) as client,
        ):
            clustered(client)
            store_of(shell, client, unique).info("o")
        store.destroy()


STORED = b'{"stream":"S","seq":2,"batch":"b","count":2}'
STAGED = b'{"type":"ack","seq":1,"msgs":10}'


def says(data: bytes) -> Callable[[Any, str], None]:
    return lambda client, reply: client.publish(reply, data)


def test_an_atomic_batch_waits_for_a_leader(shell: str, server: ServerProcess, unique: str) -> None:
    answers = status(NOBODY), says(b""), status(NOBODY), status(NOBODY), says(STORED)
    with (
        playing(server.url, unique, *answers) as asked,
        connected(shell, server.url) as client,
    ):
        clustered(client)
        batch = client.jetstream(timeout=WAIT_S).atomic_batch()
        batch.add(unique, b"1")
        batch.add(unique, b"2")
        assert batch.commit().count == 2
    assert asked == [b"1", b"1", b"2", b"2", b"2"]


def test_a_fast_batch_waits_for_a_leader(shell: str, server: ServerProcess, unique: str) -> None:
    answers = status(NOBODY), status(NOBODY), says(STAGED), lambda *_: None, says(STORED)
    with (
        playing(server.url, unique, *answers) as asked,
        connected(shell, server.url) as client,
    ):
        clustered(client)
        with client.jetstream(timeout=WAIT_S).fast_batch() as batch:
            batch.publish(unique, b"1")
            batch.publish(unique, b"2")
        assert batch.result.count == 2
    assert asked == [b"1", b"1", b"1", b"2", b""]


@pytest.mark.parametrize("way", ["atomic", "fast"])
def test_a_batch_that_nobody_takes_says_so_in_time(
    shell: str, server: ServerProcess, unique: str, way: str
) -> None:
    with connected(shell, server.url) as client:
        clustered(client)
        js = client.jetstream(timeout=2 * RETRY_S)
        begun = time.monotonic()
        batch = js.atomic_batch() if way == "atomic" else js.fast_batch()
        put = batch.add if way == "atomic" else batch.publish
        put(unique, b"1")
        with pytest.raises(NoRespondersError):
            batch.commit()
        assert time.monotonic() - begun >= RETRY_S


def delivered(shell: str, client: Any, prefix: str, ack: str) -> Any:
    """A message that is acknowledged with this subject, which only a consumer may send as a reply."""
    (received,) = fetched(shell, client, prefix, "pull")
    getattr(received, "_inner", received).reply = ack
    return received


def store_of(shell: str, client: Any, unique: str) -> Any:
    js = client.jetstream(prefix=unique)
    if shell == "blocking":
        return js._store_of(unique)
    return Waited(js._inner._store_of(unique), client._loop)


def clustered(client: Any) -> None:
    """Let the client believe that its server is in a cluster."""
    at = client._connection
    at.info = replace(at.info, cluster="c")
