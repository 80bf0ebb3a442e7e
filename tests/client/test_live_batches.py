"""Atomic and fast batches of both shells, against every server that has them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from pelton import StreamConfig, connect
from pelton.errors import (
    ApiError,
    BatchEndedError,
    NoRespondersError,
    PayloadTooLargeError,
    WrongLastSequenceError,
)
from tests.client.shells import connected
from tests.client.test_live_aio import on_a_loop
from tests.peers import OLDEST, available_servers, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

pytestmark = pytest.mark.needs("allow_atomic", "allow_batched")
MISMATCH = {"Nats-Expected-Stream": "another"}


@pytest.fixture(scope="module", params=available_servers(OLDEST))
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with running_server(request.param) as process:
        yield process


def config(name: str) -> StreamConfig:
    return StreamConfig(
        name=name, subjects=[f"{name}.>"], allow_atomic=True, allow_batched=True, storage="memory"
    )


def test_an_atomic_batch(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(config(unique))
        for count in (1, 2, 3, 250):
            batch = js.atomic_batch(ack_every=7)
            before = (js.stream_info(unique)).state.messages
            for n in range(count):
                batch.add(f"{unique}.{n % 5}", b"%d" % n, headers={"N": str(n)})
            assert (js.stream_info(unique)).state.messages == before
            ack = batch.commit()
            assert (ack.batch, ack.count, ack.seq) == (batch.id, count, before + count)
            assert batch.count == count
        message = js.get_message(unique, before + 1)
        assert message.headers.get_all("N") == ["0"]
        assert message.headers.get_all("Nats-Batch-Id") == [batch.id]
        with pytest.raises(ValueError, match="is over"):
            batch.add(f"{unique}.x")
        with pytest.raises(ValueError, match="is over"):
            batch.commit()
        with pytest.raises(ValueError, match="empty"):
            js.atomic_batch().commit()


def test_the_block_of_an_atomic_batch(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(config(unique))
        with js.atomic_batch() as batch:
            batch.add(f"{unique}.a", b"1")
            batch.add(f"{unique}.b", b"2")
        assert (batch.ack.seq, batch.ack.count) == (2, 2)
        with js.atomic_batch() as batch:
            batch.add(f"{unique}.a", b"3")
            ack = batch.commit()  # the end has nothing to do
        assert (ack.seq, batch.ack) == (3, ack)
        batch = js.atomic_batch()
        with contextlib.suppress(LookupError), batch:
            batch.add(f"{unique}.a", b"4")
            raise LookupError
        assert batch.ack is None
        with js.atomic_batch():
            pass
        with pytest.raises(WrongLastSequenceError), js.atomic_batch() as batch:
            batch.add(f"{unique}.a", b"5", expected_last_subject_seq=1)
        assert js.stream_info(unique).state.last_seq == 3
        js.delete_stream(unique)


def test_an_atomic_batch_that_is_refused(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(config(unique))
        batch = js.atomic_batch()
        batch.add(f"{unique}.a", expected_last_seq=5)
        batch.add(f"{unique}.b")
        with pytest.raises(WrongLastSequenceError):
            batch.commit()
        assert (js.stream_info(unique)).state.messages == 0
        js.update_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory"))
        batch = js.atomic_batch()
        batch.add(f"{unique}.a")
        with pytest.raises(ApiError) as caught:
            batch.add(f"{unique}.b")
        assert caught.value.err_code == 10174
        batch = js.atomic_batch()
        batch.add(f"{unique}x.a")
        with pytest.raises(NoRespondersError):
            batch.add(f"{unique}x.b")


@pytest.mark.parametrize("flow", [1, 3, 500])
def test_a_fast_batch(shell: str, server: ServerProcess, unique: str, flow: int) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(config(unique))
        with js.fast_batch(flow=flow) as batch:
            for n in range(700):
                batch.publish(f"{unique}.a", b"%d" % n)
        assert batch.result is not None
        assert (batch.result.count, batch.result.seq) == (700, 700)
        assert (js.stream_info(unique)).state.messages == 700
        with js.fast_batch() as batch:
            pass  # nothing published, nothing to commit
        assert batch.result is None
        with js.fast_batch() as one, js.fast_batch() as other:
            for n in range(100):
                one.publish(f"{unique}.one", b"%d" % n)
                other.publish(f"{unique}.other", b"%d" % n, headers={"N": str(n)})
        assert one.result is not None
        assert other.result is not None
        assert (one.result.count, other.result.count) == (100, 100)


def test_a_fast_batch_and_refusals(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(config(unique))
        batch = js.fast_batch(flow=2)
        for _ in range(3):
            batch.publish(f"{unique}.a")
        batch.publish(f"{unique}.a", headers=MISMATCH)
        with pytest.raises(BatchEndedError) as ended:
            batch.commit()
        assert (ended.value.sent, ended.value.count) == (4, 3)
        assert ended.value.failures[0][0] == 4
        batch = js.fast_batch()
        batch.publish(f"{unique}.a", headers=MISMATCH)
        with pytest.raises(ApiError) as refused:
            batch.commit()
        assert refused.value.err_code == 10060
        with js.fast_batch(gaps=True) as batch:
            for n in range(10):
                batch.publish(f"{unique}.a", headers=MISMATCH if n % 3 == 1 else None)
        assert batch.result is not None
        assert batch.result.count == 10
        assert [number for number, _ in batch.flow.failures] == [2, 5, 8]
        assert (js.stream_info(unique)).state.messages == 10
        batch = js.fast_batch()
        batch.publish(f"{unique}x.a")
        with pytest.raises(NoRespondersError):
            batch.publish(f"{unique}x.a")


def test_ids_and_pings_in_batches(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(config(unique))
        batch = js.atomic_batch(ack_every=3)
        for n in range(20):
            batch.add(f"{unique}.a", b"%d" % n, msg_id=f"m{n}")
        assert js.stream_info(unique).state.messages == 0
        ack = batch.commit()
        assert (ack.count, ack.seq) == (20, 20)
        batch = js.atomic_batch()
        batch.add(f"{unique}.a", msg_id="m3")
        with pytest.raises(ApiError) as caught:
            batch.commit()
        assert caught.value.err_code == 10201
        for flow in (1, 4, 500):
            with js.fast_batch(flow=flow) as fast:
                for n in range(300):
                    fast.publish(f"{unique}.b", b"%d" % n)
                fast.ping()
            assert fast.result is not None
            assert fast.result.count == 300
        assert js.stream_info(unique).state.messages == 920


@on_a_loop
async def test_an_idle_fast_batch_stays_open(
    server: ServerProcess, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pelton.client.aio.sending.KEEP_ALIVE_S", 0.02)
    async with connect(server.url) as client:
        js = client.jetstream()
        await js.create_stream(config(unique))
        async with js.fast_batch() as batch:
            await batch.publish(f"{unique}.a")
            heard = []
            receive = batch.flow._on_message
            batch.flow._on_message = lambda m: (heard.append(m.data), receive(m))[1]  # type: ignore[method-assign, func-returns-value] # to see the answers
            while len(heard) < 4:
                await asyncio.sleep(0.01)
            await batch.publish(f"{unique}.a")
        assert batch.result is not None
        assert batch.result.count == 2


def test_a_message_that_is_too_large_leaves_the_batch_as_it_was(
    shell: str, server: ServerProcess, unique: str
) -> None:
    """Refused where it is added, and not when the next message or the commit sends it."""
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(config(unique))
        subject = f"{unique}.x"
        batch = js.atomic_batch()
        limit = client.server_info.max_payload
        batch.add(subject, b"1")
        for size in (limit, limit + 1):
            with pytest.raises(PayloadTooLargeError, match="message 2 of the batch"):
                batch.add(subject, bytes(size))
        batch.add(subject, b"2")
        assert batch.commit().count == 2
        js.delete_stream(unique)
