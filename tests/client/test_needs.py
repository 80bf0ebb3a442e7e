"""Fields of configurations that a server may not know: what is asked of it, and what its answer lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from pelton import (
    ConsumerConfig,
    ConsumerInfo,
    KeyValueConfig,
    NotEnabledError,
    ObjectStoreConfig,
    StaticGroupConfig,
    StreamConfig,
    StreamConsumerLimits,
    StreamInfo,
    StreamSource,
    SubjectTransform,
)
from pelton.api import calls as wire
from pelton.api import encode
from pelton.client.aio.jetstream import JetStream
from pelton.client.base.answers import needs_of
from pelton.client.base.models import AccountInfo, ConsumerInfoResponse, StreamInfoResponse
from tests.client.by_hand import INFO, House, Until, carry_on, published
from tests.client.shells import connected
from tests.peers import running_server, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

ALONE = INFO.replace(b'"cluster":"c",', b"")
"""A server of no cluster: a request is sent once."""
TRANSFORM = SubjectTransform(src="a.>", dest="b.>")
OF_STREAMS: dict[str, tuple[int, Any]] = {
    "compression": (0, "s2"),
    "first_seq": (0, 7),
    "subject_transform": (0, TRANSFORM),
    "consumer_limits": (0, StreamConsumerLimits(max_ack_pending=5)),
    "sources": (0, [StreamSource(name="A", subject_transforms=[TRANSFORM])]),
    "metadata": (0, {"a": "b"}),
    "allow_msg_ttl": (1, True),
    "subject_delete_marker_ttl": (1, 1),
    "allow_msg_counter": (2, True),
    "allow_atomic": (2, True),
    "allow_msg_schedules": (2, True),
    "persist_mode": (2, "async"),
    "allow_batched": (4, True),
}
OF_CONSUMERS: dict[str, tuple[int, Any]] = {
    "filter_subjects": (0, ["a", "b"]),
    "metadata": (0, {"a": "b"}),
    "pause_until": (1, 2 * 10**18),
    "priority_groups": (1, ["g"]),
    "priority_policy": (1, "overflow"),
    "priority_timeout": (1, 1),
}
CASES = [
    *((StreamConfig(name="S"), name, *rest) for name, rest in OF_STREAMS.items()),
    *((ConsumerConfig(name="C"), name, *rest) for name, rest in OF_CONSUMERS.items()),
]


class Call:
    """A call that makes a stream or a consumer, and the server that answers its requests."""

    def __init__(self, config: Any, *, level_told: int = 0, strict: bool = True) -> None:
        told = b'"api_lvl":%d,' % level_told if level_told else b""
        self._house = House(info=ALONE.replace(b"{", b"{" + told, 1))
        js = JetStream(self._house, domain=None, prefix=None, timeout=2.0)
        if isinstance(config, StreamConfig):
            self._call = js.create_stream(config, strict=strict)
        else:
            self._call = js.create_consumer("S", config, strict=strict)
        self._step = carry_on(self._call)
        self._reply = b""

    def asked(self) -> str:
        """The subject of the request that waits for its answer."""
        assert isinstance(self._step, Until)
        subject, reply, _ = published(self._house)
        self._reply = reply.encode()
        return subject

    def answer(self, body: bytes) -> str:
        """The server answers; the subject of the next request."""
        self._house.hear(b"MSG %s 1 %d\r\n%s\r\n" % (self._reply, len(body), body))
        self._step = carry_on(self._call, answer=True)
        return self.asked()

    def silence(self) -> str:
        """The server does not answer; the subject of the next request."""
        self._house.now += self._step.seconds
        self._step = carry_on(self._call, answer=False)
        return self.asked()

    def result(self, body: bytes) -> Any:
        """What the call returns after the last answer."""
        self._house.hear(b"MSG %s 1 %d\r\n%s\r\n" % (self._reply, len(body), body))
        found = carry_on(self._call, answer=True)
        assert not isinstance(found, Until)
        return found


def made(config: Any) -> bytes:
    """The answer of a server that has made this."""
    if isinstance(config, StreamConfig):
        return encode(StreamInfoResponse(info=StreamInfo(config=config)))
    return encode(ConsumerInfoResponse(info=ConsumerInfo(name="C", config=config)))


def account(level: int) -> bytes:
    info = AccountInfo(api=wire.ApiStats(level=level))
    return encode(wire.AccountInfoResponse(info=info))


@pytest.mark.parametrize(("plain", "field", "level", "value"), CASES)
def test_each_field_is_asked_for_and_missed(plain: Any, field: str, level: int, value: Any) -> None:
    config = replace(plain, **{field: value})
    (need,) = needs_of(config)
    assert (need.level, needs_of(plain)) == (level, [])
    call = Call(config)
    asked = call.asked()
    if level:
        assert asked == "$JS.API.INFO"
        with pytest.raises(
            NotEnabledError, match=f"does not know {need.field}: it needs nats-server 2"
        ):
            call.answer(account(level - 1))
        call = Call(config)
        call.asked()
        asked = call.answer(account(level))
    assert ".CREATE" in asked
    with pytest.raises(NotEnabledError, match=f"without {need.field}, which it does not know"):
        call.result(made(plain))
    lenient = Call(config, strict=False)
    assert ".CREATE" in lenient.asked()
    assert lenient.result(made(plain)).config == plain
    told = Call(config, level_told=level)
    assert ".CREATE" in told.asked()
    assert told.result(made(config)).config == config


def test_without_an_answer_about_the_level_the_call_itself_tells() -> None:
    config = StreamConfig(name="S", allow_msg_ttl=True)
    call = Call(config)
    assert call.asked() == "$JS.API.INFO"
    assert call.silence() == "$JS.API.STREAM.CREATE.S"
    assert call.result(made(config)).config == config


def test_what_says_the_same_as_nothing_needs_nothing() -> None:
    config = StreamConfig(name="S", persist_mode="default", metadata={"_nats.level": "4"})
    assert needs_of(config) == []
    consumer = ConsumerConfig(filter_subjects=["a"], priority_policy="none")
    (need,) = needs_of(consumer)
    assert need.of(ConsumerConfig(filter_subject="a"))


# -- servers ----------------------------------------------------------------------------------------

OLDER = pytest.mark.skipif(not version_of("older"), reason="no older nats-server")


@pytest.fixture(scope="module")
def older() -> Iterator[ServerProcess]:
    with running_server("older") as process:
        yield process


@OLDER
@pytest.mark.peer
def test_an_older_server_makes_nothing_that_it_does_not_know(
    shell: str, older: ServerProcess
) -> None:
    with connected(shell, older.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["a", "b"]))
        for config in (StreamConfig(name="T", allow_msg_ttl=True), StreamConfig(allow_atomic=True)):
            with pytest.raises(NotEnabledError, match="the server does not know allow_"):
                js.create_stream(replace(config, name="T"))
        with pytest.raises(NotEnabledError, match=r"limit_marker_ttl: it needs nats-server 2\.11"):
            js.create_key_value(KeyValueConfig(bucket="b", limit_marker_ttl="5s"))
        with pytest.raises(NotEnabledError, match="allow_msg_ttl"):
            js.update_stream(StreamConfig(name="S", subjects=["a", "b"], allow_msg_ttl=True))
        with pytest.raises(NotEnabledError, match="priority_groups, priority_policy: it needs"):
            js.create_consumer(
                "S", ConsumerConfig(name="c", priority_groups=["g"], priority_policy="overflow")
            )
        assert (js.stream_names(), js.consumer_names("S")) == (["S"], [])
        js.publish("a", b"1")
        js.create_consumer("S", ConsumerConfig(durable_name="d"))
        with pytest.raises(
            NotEnabledError, match=r"pauses of consumers: it needs nats-server 2\.11"
        ):
            js.pause_consumer("S", "d", 2 * 10**18)
        with pytest.raises(
            NotEnabledError, match=r"resets of consumers: it needs nats-server 2\.14"
        ):
            js.reset_consumer("S", "d")
        with pytest.raises(
            NotEnabledError, match=r"pins of priority groups: it needs nats-server 2"
        ):
            js.unpin_consumer("S", "d", "g")
        info = js.create_stream(StreamConfig(name="T", allow_msg_ttl=True), strict=False)
        assert not info.config.allow_msg_ttl
        js.delete_stream("T")
        js.delete_stream("S")


@OLDER
@pytest.mark.peer
def test_what_an_older_server_has_left_out_is_told(shell: str, older: ServerProcess) -> None:
    with connected(shell, older.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["a", "b"]))
        calls = {
            "metadata": lambda: js.create_stream(StreamConfig(name="T", metadata={"a": "b"})),
            "compression": lambda: js.create_object_store(
                ObjectStoreConfig(bucket="o", compression=True)
            ),
            "filter_subjects": lambda: js.create_consumer(
                "S", ConsumerConfig(name="c", filter_subjects=["a", "b"])
            ),
        }
        for field, call in calls.items():
            if version_of("older") >= (2, 10):
                call()
                continue
            with pytest.raises(
                NotEnabledError, match=rf"without {field}.*it needs nats-server 2\.10"
            ):
                call()
        for name in js.stream_names():
            js.delete_stream(name)


@OLDER
@pytest.mark.peer
def test_a_member_of_a_group_is_told_at_once(shell: str, older: ServerProcess) -> None:
    with connected(shell, older.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["*.a"]))
        group = js.create_static_group("S", "g", StaticGroupConfig(max_members=2, members=["m"]))
        with (
            group.consume("m", print) as messages,
            pytest.raises(NotEnabledError, match="priority"),
        ):
            messages.run(timeout=60)
        js.delete_stream("S")


@OLDER
@pytest.mark.peer
def test_direct_gets_that_an_older_server_does_not_know(shell: str, older: ServerProcess) -> None:
    with connected(shell, older.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["a", "b"], allow_direct=True))
        js.publish("a", b"1")
        assert js.direct_get("S", 1).data == b"1"
        for call in (
            lambda: js.direct_get("S", start_time=10**18),
            lambda: list(js.get_batch("S")),
            lambda: list(js.get_last_messages_for("S", ["a", "b"])),
        ):
            with pytest.raises(
                NotEnabledError,
                match=r"direct gets by time or in batches: it needs nats-server 2\.11",
            ):
                call()
        js.delete_stream("S")


@pytest.mark.needs("allow_batched")
def test_a_server_of_today_knows_all(shell: str, server: ServerProcess, unique: str) -> None:
    values = {name: value for name, (_, value) in OF_STREAMS.items()}
    alone = {name: values.pop(name) for name in ("allow_msg_counter", "sources", "persist_mode")}
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=f"{unique}_A", subjects=[f"{unique}.a.>"]))
        values["subject_transform"] = SubjectTransform(src=f"{unique}.>", dest=f"{unique}.b.>")
        info = js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.c.>"], **values))
        assert info.config.allow_batched
        source = replace(alone["sources"][0], name=f"{unique}_A")
        js.create_stream(StreamConfig(name=f"{unique}_B", sources=[source]))
        js.create_stream(
            StreamConfig(name=f"{unique}_C", allow_msg_counter=True, allow_direct=True)
        )
        js.create_stream(StreamConfig(name=f"{unique}_D", persist_mode="async"))
        config = ConsumerConfig(
            durable_name="c",
            filter_subjects=[f"{unique}.b.x", f"{unique}.b.y"],
            metadata={"a": "b"},
            pause_until=2 * 10**18,
            priority_groups=["g"],
            priority_policy="pinned_client",
            priority_timeout=10,
        )
        js.create_consumer(unique, config)
        js.update_consumer(unique, replace(config, pause_until=0))
        js.create_consumer(unique, ConsumerConfig(name="d", filter_subjects=[f"{unique}.b.x"]))
        for name in (unique, *(f"{unique}_{letter}" for letter in "ABCD")):
            js.delete_stream(name)
