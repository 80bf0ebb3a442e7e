"""Wrong arguments of public calls: a documented error that names them, before anything is sent."""

from __future__ import annotations

import inspect
import linecache
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pelton.testing
from pelton import (
    Base64Keys,
    Base64Values,
    ConsumerConfig,
    ConsumerNotFoundError,
    InvalidKeyError,
    InvalidSubjectError,
    InvalidValueError,
    KeyValueConfig,
    NoRespondersError,
    ObjectStoreConfig,
    PathKeys,
    ServiceConfig,
    StaticGroupConfig,
    StreamConfig,
)
from pelton.errors import PeltonError, StreamSealedError
from tests.client.shells import SHELLS, connected
from tests.ways import length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOOD: dict[str, Any] = {
    "stream": "S",
    "consumer": "c",
    "name": "c",
    "subject": "s.a",
    "data": b"x",
    "key": "k",
    "value": b"v",
    "seq": 1,
    "revision": 1,
    "bucket": "b",
    "content": b"x",
    "values": {"k": b"v"},
    "kind": int,
    "form": "json",
    "timeout": 0.05,
    "max_wait": 0.05,
    "no_wait": True,
    "delay": 1,
    "patience": 0.1,
    "start_seq": 1,
    "stop_seq": 2,
    "until": 0,
}
ANY = (
    "bool",
    "V",
    "Unpack",
    "Literal",
    "OnMissing",
    "ConsumerAction",
    "DeliverPolicy",
    "ReplayPolicy",
)
"""What the annotations begin with that take any object, or a word that newer servers may know."""
CLASSES = (
    *("Client", "JetStream", "KeyValue", "ObjectStore", "Consumer", "OrderedConsumer"),
    *("PushConsumer", "Counter", "Publisher", "AtomicBatch", "FastBatch", "Subscription"),
    *("ServiceClient", "KeyTransaction"),
)
_NAMES = """
close drain detach wait_until abandon entry run reconnect encoded read_subject write_subject get_file
column_reader read_columns
"""
ELSEWHERE = set(_NAMES.split())
"""Calls for modules of the client itself, those that end it, and one that writes files."""
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 3),
    st.just(2**70),
    st.floats(-1, 3),
    st.sampled_from([float("nan"), "", " ", "a b", "a.*", ">", "x\r\ny", "\ud800", "x" * 300]),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from([object(), [], [1], {}, {"a": 1}, (), ["a"], {1: "a"}, {"a": [1]}, print]),
)


class Handle:
    """Objects of users, made anew by ``make`` when a call has ended them."""

    def __init__(self, shell: str, js: Any, client: Any) -> None:
        self.shell = shell
        self.kinds: dict[str, Any] = {
            "Client": client,
            "JetStream": js,
            "KeyValue": js.key_value("b"),
            "ObjectStore": js.object_store("o"),
            "Consumer": js.consumer("S", "c"),
            "OrderedConsumer": js.ordered_consumer("S"),
            "PushConsumer": js.push_consumer("S", "p"),
            "Counter": js.counter("S"),
            "Publisher": js.publisher(),
            "AtomicBatch": js.atomic_batch(),
            "FastBatch": js.fast_batch(),
            "Subscription": client.subscribe("n.a"),
            "ServiceClient": client.service_client(),
            "KeyTransaction": js.key_value("b").transaction(),
        }


@pytest.fixture(scope="module", params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(shell: str) -> Iterator[Any]:
    """One for each shell: the calls that are drawn delete what it has."""
    with pelton.testing.broker() as each:
        yield each


def raw(handle: Any) -> Any:
    return getattr(handle, "_inner", handle)


def calls(kind: type) -> Iterator[tuple[str, inspect.Signature]]:
    """The public calls of a class, with their signatures."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        signature = inspect.signature(method)
        steps = str(signature.return_annotation).startswith(("Steps", "Flow", "Plan"))
        if not (name.startswith("_") or steps or name in ELSEWHERE):
            yield name, signature


def is_told(error: BaseException) -> bool:
    """Whether the client itself raises the error, on purpose."""
    # Python's own errors say best that text has half of a surrogate pair, and which keyword is missing
    if isinstance(error, PeltonError | UnicodeEncodeError) or "missing 1 required" in str(error):
        return True
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "/pelton/" in frame.filename:
            line = linecache.getline(frame.filename, frame.lineno or 0).strip()
            return isinstance(error, TypeError | ValueError | RuntimeError) and line.startswith(
                "raise "
            )
    return False


def arguments(
    signature: inspect.Signature, odd: str, value: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Good arguments, but for one."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if name == "self" or parameter.kind is parameter.VAR_KEYWORD:
            continue
        given = value if name == odd else GOOD.get(name, "x")
        if parameter.kind is parameter.VAR_POSITIONAL:
            args += [given] if name == odd else []
        elif parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty:
            needed = parameter.default is parameter.empty
            if name == "delay" and odd not in ("at", "cron", "every"):
                needed = True  # the one time of a schedule
            if name == "seq" and odd in ("stream", "timeout"):
                needed = True  # the one message of a get
            if needed or name in (odd, "timeout", "max_wait", "no_wait"):
                kwargs[name] = given
        else:
            args.append(given)
    return args, kwargs


def wrongs() -> Iterator[tuple[str, str, str, Any]]:
    """(class, call, parameter, value of a wrong kind) for each parameter that has one."""
    for kind in CLASSES:
        for name, signature in calls(getattr(pelton, kind)):
            for parameter in signature.parameters.values():
                kind_of = str(parameter.annotation)
                if parameter.name != "self" and not kind_of.startswith(ANY):
                    yield kind, name, parameter.name, object()


@pytest.fixture(scope="module")
def handle(shell: str, broker: Any) -> Iterator[Handle]:
    with connected(shell, broker.url, timeout=0.5) as client:
        js, patient = client.jetstream(), client.jetstream(timeout=30)
        patient.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_msg_counter=False))
        patient.create_consumer("S", ConsumerConfig(durable_name="c"))
        patient.create_consumer("S", "p", deliver_subject="d")
        patient.create_key_value(KeyValueConfig(bucket="b"))
        patient.create_object_store(ObjectStoreConfig(bucket="o"))
        yield Handle(shell, js, client)


def test_an_argument_of_a_wrong_kind_is_named_before_anything_is_sent(
    broker: Any, handle: Handle
) -> None:
    wrong = []
    for kind, call, name, value in wrongs():
        target = handle.kinds[kind]
        signature = dict(calls(type(raw(target)))).get(call)
        if signature is None or name not in signature.parameters:
            continue
        args, kwargs = arguments(signature, name, value)
        handle.kinds["Client"].flush(60)
        before = len(broker.published)
        try:
            made = getattr(target, call)(*args, **kwargs)
            if inspect.isgenerator(made):
                next(made)
        except TypeError as error:
            if name not in str(error) or "object" not in str(error):
                wrong.append((kind, call, name, str(error)))
        except BaseException as error:
            wrong.append((kind, call, name, repr(error)))
        else:
            wrong.append((kind, call, name, "taken"))
        handle.kinds["Client"].flush(60)
        if len(broker.published) != before:
            wrong.append((kind, call, name, f"sent {broker.published[before:]}"))
    assert not wrong, "\n".join(map(str, wrong))


def service(**fields: Any) -> Callable[[Handle], object]:
    return lambda handle: handle.kinds["Client"].add_service(
        ServiceConfig(**{"name": "s", "version": "1.0.0", **fields})
    )


def js(call: Callable[[Any], object]) -> Callable[[Handle], object]:
    return lambda handle: call(handle.kinds["JetStream"])


def bucket(call: Callable[[Any], object]) -> Callable[[Handle], object]:
    return lambda handle: call(handle.kinds["KeyValue"])


KV = KeyValueConfig(bucket="n")
GROUP = StaticGroupConfig(max_members=1, members=["a"])
WRONG: list[tuple[Callable[[Handle], object], type[Exception], str]] = [
    (service(name="a b"), ValueError, "name 'a b'"),
    (service(version="1"), ValueError, "version '1'"),
    (service(metadata=[1]), TypeError, "metadata is a mapping"),
    (service(metadata={"a": 1}), TypeError, "metadata: 'a'"),
    (service(queue_group=5), TypeError, "queue_group is text"),
    (service(queue_group="a b"), ValueError, "queue group 'a b'"),
    (service(stats_handler=5), TypeError, "stats_handler is a function"),
    (js(lambda js: js.atomic_batch(ack_every=0)), ValueError, "ack_every"),
    (js(lambda js: js.atomic_batch().add("s.*", b"")), InvalidSubjectError, "'s.*'"),
    (js(lambda js: js.atomic_batch().add("", b"")), InvalidSubjectError, "''"),
    (js(lambda js: js.push_consumer("s.a", "c")), ValueError, "stream name 's.a'"),
    (js(lambda js: js.consumer("s.a", "c")), ValueError, "stream name 's.a'"),
    (js(lambda js: js.ordered_consumer("S").fetch(0)), ValueError, "at least one message, got 0"),
    (js(lambda js: js.ordered_consumer("S").fetch(1, max_bytes=-1)), ValueError, "max_bytes"),
    (js(lambda js: js.publisher(window=0)), ValueError, "window"),
    (js(lambda js: js.publisher(attempts_max=0)), ValueError, "attempts_max"),
    (js(lambda js: js.counter("S").increment("s.a", True)), TypeError, "True"),
    (js(lambda js: js.counter("S").increment("s.*", 1)), InvalidSubjectError, "'s.*'"),
    (js(lambda js: js.schedule("s.p", target="s.p", delay=1)), ValueError, "target"),
    (js(lambda js: js.schedule("s.p", target="s.t", cron="x")), ValueError, "cron"),
    (js(lambda js: js.schedule("s.p", target="s.t", delay=1, every=1)), ValueError, "one of"),
    (js(lambda js: js.cancel_schedule("S", "s.*")), InvalidSubjectError, "'s.*'"),
    (
        js(lambda js: js.create_stream(StreamConfig(name="N", subjects="n.>"))),
        TypeError,
        "subjects",
    ),
    (js(lambda js: js.update_stream(StreamConfig(name="S", max_msgs="5"))), TypeError, "max_msgs"),
    (
        js(lambda js: js.create_stream(StreamConfig(name="N", sources=["S"]))),
        TypeError,
        "structure",
    ),
    (
        js(lambda js: js.create_stream(StreamConfig(name="N", metadata={"a": 1}))),
        TypeError,
        "data.a",
    ),
    (
        js(lambda js: js.create_consumer("S", ConsumerConfig(filter_subjects="s.a"))),
        TypeError,
        "ConsumerConfig: filter_subjects is a list of texts, not str ('s.a')",
    ),
    (js(lambda js: StaticGroupConfig(max_members="x")), TypeError, "max_members"),
    (js(lambda js: StaticGroupConfig(max_members=1, members=5)), TypeError, "members"),
    (js(lambda js: StaticGroupConfig(max_members=1, members=["a b"])), ValueError, "'a b'"),
    (js(lambda js: js.create_static_group("S", "g g", GROUP)), ValueError, "'g g'"),
    (js(lambda js: js.create_key_value("n", histroy=5)), TypeError, "did you mean history?"),
    (js(lambda js: js.update_key_value("n", hystory=5)), TypeError, "did you mean history?"),
    (js(lambda js: js.create_key_value(KV, history=5)), TypeError, "not both: history"),
    (js(lambda js: js.create_or_update_key_value(KV, ttl=5)), TypeError, "not both: ttl"),
    (js(lambda js: js.create_key_value(5)), TypeError, "bucket is a name or a KeyValueConfig"),
    (js(lambda js: js.create_key_value("n", history=0)), ValueError, "history is 1 to 64"),
    (js(lambda js: js.create_key_value("n", ttl="soon")), ValueError, "ttl: 'soon'"),
    (bucket(lambda kv: kv.with_keys(5)), TypeError, "5 is no codec"),
    (bucket(lambda kv: kv.with_keys(Base64Keys)), TypeError, "is no codec"),
    (bucket(lambda kv: kv.with_values(5)), TypeError, "5 is no codec"),
    (bucket(lambda kv: kv.with_keys(PathKeys()).put("//", b"")), InvalidKeyError, "'//'"),
    (bucket(lambda kv: kv.with_keys(Base64Keys()).put("", b"")), InvalidKeyError, "''"),
    (bucket(lambda kv: kv.with_values(Base64Values()).put("k", "x")), TypeError, "bytes"),
    (bucket(lambda kv: kv.typed(int).put("k", "x")), InvalidValueError, "'k'"),
]


def test_wrong_values_are_refused_before_anything_is_sent(broker: Any, handle: Handle) -> None:
    handle.kinds["Client"].flush(60)
    before = len(broker.published)
    for number, (call, kind, words) in enumerate(WRONG):
        with pytest.raises(kind) as refused:
            call(handle)
        assert words in str(refused.value), number
        assert is_told(refused.value), number
    handle.kinds["Client"].flush(60)
    assert broker.published[before:] == ()


def test_errors_say_what_the_user_called(handle: Handle) -> None:
    """And not the steps behind it, nor the words of the protocol alone."""
    js = handle.kinds["JetStream"]
    with pytest.raises(TypeError, match=r"KeyValue\.update\(\) missing 1 .*: 'revision'"):
        js.key_value("b").update("k", b"x")
    with pytest.raises(TypeError, match=r"\.stream_info\(\) got an unexpected .* 'subject'"):
        js.stream_info("S", subject="s.a")
    with pytest.raises(NoRespondersError, match=r"'nowhere': no stream stores this subject"):
        js.publish("nowhere", b"")
    with pytest.raises(ConsumerNotFoundError) as missing:
        js.consumer("S", "zzz")
    assert missing.value.__notes__ == ["the answer to $JS.API.CONSUMER.INFO.S.zzz"]
    assert str(pickle.loads(pickle.dumps(NoRespondersError("a", "why")))) == str(
        NoRespondersError("a", "why")
    )


def test_a_blocking_consumer_takes_no_coroutine_function(handle: Handle) -> None:
    """Nobody would run it, and auto_ack would acknowledge its messages."""

    async def handler(message: Any) -> None:
        """Would be run by an asyncio client."""

    consumer = handle.kinds["JetStream"].consumer("S", "c")
    if handle.shell == "blocking":
        with pytest.raises(TypeError, match="coroutine function"):
            consumer.consume(handler)
    else:
        consumer.consume(handler).stop()


def test_a_store_known_as_sealed_gets_no_chunks(broker: Any, handle: Handle) -> None:
    name = f"sealed-{handle.shell}"
    js = handle.kinds["JetStream"]
    sealing = js.create_object_store(ObjectStoreConfig(bucket=name))
    sealing.seal()
    for store in (sealing, js.object_store(name)):
        with pytest.raises(StreamSealedError):
            store.put("x", bytes(300_000))
    assert not [each for each in broker.published if each.subject.startswith(f"$O.{name}.")]
    sealing.destroy()
    js.create_object_store(ObjectStoreConfig(bucket=name))
    sealing.put("x", b"1")  # another bucket of that name


@settings(max_examples=length(150, 3000), deadline=None)
@given(data=st.data())
def test_any_argument_is_taken_or_refused_with_a_documented_error(
    handle: Handle, data: st.DataObject
) -> None:
    kind = data.draw(
        st.sampled_from(["Client", "JetStream", "KeyValue", "ObjectStore", "Consumer"])
    )
    target = handle.kinds[kind]
    found = dict(calls(type(raw(target))))
    call = data.draw(st.sampled_from(sorted(found)))
    names = [name for name in found[call].parameters if name != "self"]
    if not names:
        return
    name = data.draw(st.sampled_from(names))
    args, kwargs = arguments(found[call], name, data.draw(ODD))
    try:
        made = getattr(target, call)(*args, **kwargs)
        if inspect.isgenerator(made):
            made.close()
    except Exception as error:
        if not is_told(error):
            raise
