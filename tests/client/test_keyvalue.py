"""Buckets without a server: names and keys, configurations, codecs, and the position of a watch."""

from __future__ import annotations

import dataclasses
import pickle
import string
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pelton import (
    Base64Keys,
    Base64Values,
    ConsumerConfig,
    ConsumerInfo,
    ExternalStream,
    FilterableKeyCodec,
    KeyValue,
    KeyValueConfig,
    KvEntry,
    PathKeys,
    StreamConfig,
    StreamInfo,
    StreamSource,
    StreamState,
    SubjectTransform,
    TypedValues,
    sync,
)
from pelton.api import keyvalue as wire
from pelton.api.subjects import AckSubject
from pelton.client.aio.jetstream import JetStream
from pelton.client.base.arguments import make_config
from pelton.client.consume.ordered import WatchPosition
from pelton.client.keyvalue.codecs import PlainValues, encoded_filter, encoded_value
from pelton.client.keyvalue.config import KeyValueFields, config_of, prefixes, status_of
from pelton.errors import (
    BadBucketError,
    InvalidBucketNameError,
    InvalidKeyError,
    InvalidValueError,
    KeyExistsError,
    NoValueError,
    RevisionConflictError,
    WrongLastSequenceError,
)

TOKEN_CHARACTERS = string.ascii_letters + string.digits + "-_/="
SOME_TEXT = st.text(st.sampled_from([*TOKEN_CHARACTERS, ".", "*", ">", " ", "ä", "\n"]), max_size=8)


class Silent:
    """A session that nothing is sent through."""

    def __init__(self) -> None:
        self.client = self
        self.clock = lambda: 0.0


def bucket(config: KeyValueConfig | None = None) -> Any:
    """A handle of a bucket that no server has."""
    js: Any = JetStream(Silent(), domain=None, prefix=None, timeout=1)  # type: ignore[arg-type]  # sends nothing
    config = config or KeyValueConfig(bucket="b")
    info = StreamInfo(config=config.stream_config())
    return sync.KeyValue(js, info, PlainValues())


# -- names


@given(SOME_TEXT)
@example(".a")
@example("a.")
@example("a..b")
@example("")
@example("a\n")
def test_a_key_is_valid_as_in_the_official_clients(key: str) -> None:
    """The rule as nats.go states it: a set of characters, and where dots may not be."""
    bad = not key or key[0] == "." or key[-1] == "." or ".." in key
    valid = not bad and all(each in TOKEN_CHARACTERS + "." for each in key)
    assert wire.valid_key(key) == valid
    if valid:
        assert bucket()._keyspace.write_subject(key) == f"$KV.b.{key}"
        assert wire.valid_filter(key)
    else:
        with pytest.raises(InvalidKeyError, match="letters, digits"):
            bucket()._keyspace.write_subject(key)


@given(st.lists(st.sampled_from(["a", "b/=", "*", ">", "a*", ">b", ""]), max_size=4))
def test_a_filter_has_wildcards_for_whole_tokens_only(tokens: list[str]) -> None:
    pattern = ".".join(tokens)
    plain = [token for token in tokens if token in ("a", "b/=", "*")]
    valid = bool(tokens) and plain == [token for token in tokens if token != ">"]
    valid &= ">" not in tokens[:-1]
    assert wire.valid_filter(pattern) == valid


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "ä", "a/b", 7, None])
def test_names_that_no_bucket_may_have(name: Any) -> None:
    with pytest.raises(InvalidBucketNameError, match="letters, digits"):
        KeyValueConfig(bucket=name)


def test_filters_lose_what_others_contain_and_may_not_overlap() -> None:
    of = bucket()._keyspace.subjects
    assert of(()) == ["$KV.b.>"]
    assert of(("a.b", "a.*", "c", "c")) == ["$KV.b.a.*", "$KV.b.c"]
    assert of(("a", ">", "b.>")) == ["$KV.b.>"]
    with pytest.raises(InvalidKeyError, match="in common"):
        of(("a.*", "*.b"))
    for wrong in ("", "a*", ">.a", "a..b"):
        with pytest.raises(InvalidKeyError):
            of((wrong,))
    with pytest.raises(TypeError, match=r"filters is text, not int \(3\)"):
        of((3,))


# -- configurations


def test_the_stream_is_that_of_the_official_clients() -> None:
    """The configuration that nats.go makes of its KeyValueConfig, field by field."""
    config = KeyValueConfig(
        bucket="b",
        description="d",
        history=5,
        ttl="90s",
        limit_marker_ttl=60,
        max_value_size=10,
        max_bytes=1000,
        storage="memory",
        replicas=3,
        compression=True,
        metadata={"m": "1"},
    )
    assert config.stream_config() == StreamConfig(
        name="KV_b",
        description="d",
        subjects=["$KV.b.>"],
        max_consumers=-1,
        max_msgs=-1,
        max_bytes=1000,
        max_age=90,
        max_msgs_per_subject=5,
        max_msg_size=10,
        discard="new",
        storage="memory",
        num_replicas=3,
        duplicate_window=90,
        compression="s2",
        allow_direct=True,
        deny_delete=True,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
        subject_delete_marker_ttl=60,
        metadata={"m": "1"},
    )
    least = KeyValueConfig(bucket="b").stream_config()
    assert (least.max_bytes, least.max_msg_size, least.max_msgs_per_subject) == (-1, -1, 1)
    assert (least.num_replicas, least.duplicate_window) == (1, 120 * 10**9)
    assert not least.allow_msg_ttl
    assert not least.allow_atomic


@given(
    st.builds(
        KeyValueConfig,
        bucket=st.just("b"),
        history=st.integers(1, 64),
        ttl=st.integers(0, 10**6),
        limit_marker_ttl=st.integers(0, 10**6),
        max_value_size=st.integers(1, 2**31 - 1),
        max_bytes=st.integers(1, 2**40),
        storage=st.sampled_from(["file", "memory"]),
        replicas=st.integers(1, 5),
        compression=st.booleans(),
        allow_atomic=st.booleans(),
        metadata=st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")),
    )
)
def test_a_configuration_comes_back_from_its_stream(config: KeyValueConfig) -> None:
    assert config_of(config.stream_config()) == config
    assert dataclasses.replace(config) == config  # durations stay what they are


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"history": 0}, "1 to 64"),
        ({"history": 65}, "1 to 64"),
        ({"history": "5"}, "1 to 64"),
        ({"ttl": -1}, "ttl: a duration is not negative"),
        ({"ttl": "soon"}, "ttl: 'soon' is no duration"),
        ({"limit_marker_ttl": 1e9}, "limit_marker_ttl: .*ten years"),
        ({"limit_marker_ttl": 0.5}, "at least one second"),
        ({"mirror": "a", "sources": ["b"]}, "not both"),
        ({"mirror": "a.b"}, "cannot be the name of a bucket"),
    ],
)
def test_mistakes_of_a_configuration(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        KeyValueConfig(bucket="b", **wrong).stream_config()


def test_the_keywords_are_the_fields_of_the_class() -> None:
    fields = get_type_hints(KeyValueConfig)
    assert fields.pop("bucket") is str
    assert get_type_hints(KeyValueFields) == fields
    assert not KeyValueFields.__required_keys__


def test_a_configuration_is_an_object_or_a_name_and_keywords() -> None:
    config = KeyValueConfig(bucket="b", history=5, ttl="1h")
    assert make_config(KeyValueConfig, "b", {"history": 5, "ttl": "1h"}, "bucket") == config
    assert make_config(KeyValueConfig, config, {}, "bucket") is config
    assert make_config(StreamConfig, "S", {"max_msgs": 1}, "name").max_msgs == 1
    assert make_config(ConsumerConfig, None, {"ack_wait": 1}) == ConsumerConfig(ack_wait=1)
    with pytest.raises(TypeError, match=r"KeyValueConfig has no field histroy: did you mean hist"):
        make_config(KeyValueConfig, "b", {"histroy": 5}, "bucket")
    with pytest.raises(TypeError, match=r"StreamConfig has no field zzz: see help\(StreamConfig"):
        make_config(StreamConfig, "S", {"zzz": 5}, "name")
    with pytest.raises(TypeError, match=r"a whole KeyValueConfig, or .*, not both: history, ttl"):
        make_config(KeyValueConfig, config, {"history": 5, "ttl": 1}, "bucket")
    for wrong in (None, 5, StreamConfig(name="S")):
        with pytest.raises(TypeError, match="bucket is a name or a KeyValueConfig, not "):
            make_config(KeyValueConfig, wrong, {}, "bucket")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError, match="config is ConsumerConfig, not str"):
        make_config(ConsumerConfig, "c", {})


def test_mirrors_and_sources_name_streams_and_map_keys() -> None:
    mirror = KeyValueConfig(bucket="m", mirror="b").stream_config()
    assert mirror.mirror == StreamSource(name="KV_b")
    assert mirror.subjects == []
    assert mirror.mirror_direct
    elsewhere = StreamSource(name="KV_own", external=ExternalStream(api="$JS.hub.API"))
    own = KeyValueConfig(
        bucket="own", sources=["a", StreamSource(name="KV_b", filter_subject="$KV.b.x"), elsewhere]
    ).stream_config()
    assert [each.name for each in own.sources] == ["KV_a", "KV_b", "KV_own"]
    assert own.sources[0].subject_transforms == [SubjectTransform(src="$KV.a.>", dest="$KV.own.>")]
    assert own.sources[1].subject_transforms == [SubjectTransform(src="$KV.b.>", dest="$KV.own.>")]
    assert own.sources[2].subject_transforms == []
    assert own.subjects == ["$KV.own.>"]
    given = StreamSource(name="a", subject_transforms=[SubjectTransform(src="x", dest="y")])
    assert KeyValueConfig(bucket="b", sources=[given]).stream_config().sources[
        0
    ].subject_transforms == [SubjectTransform(src="x", dest="y")]


@pytest.mark.parametrize(
    ("mirror", "api", "stored", "written"),
    [
        (None, "$JS.API", "$KV.b.", "$KV.b."),
        (None, "$JS.hub.API", "$KV.b.", "$JS.hub.API.$KV.b."),
        (StreamSource(name="KV_o"), "$JS.API", "$KV.o.", "$KV.o."),
        (
            StreamSource(name="KV_o", external=ExternalStream(api="$JS.hub.API")),
            "$JS.leaf.API",
            "$KV.o.",
            "$JS.hub.API.$KV.o.",
        ),
        (
            StreamSource(
                name="KV_o", subject_transforms=[SubjectTransform(src="$KV.o.>", dest="$KV.b.>")]
            ),
            "$JS.API",
            "$KV.b.",
            "$KV.o.",
        ),
    ],
)
def test_what_is_written_goes_to_the_origin(
    mirror: StreamSource | None, api: str, stored: str, written: str
) -> None:
    config = KeyValueConfig(bucket="b", mirror=mirror).stream_config()
    assert prefixes(config, api, "$JS.API") == (stored, written)


@pytest.mark.parametrize(
    "config",
    [
        StreamConfig(name="KV_b", subjects=["b.>"], max_msgs_per_subject=1),
        StreamConfig(name="b", subjects=["$KV.b.>"], max_msgs_per_subject=1),
        StreamConfig(name="KV_b", subjects=["$KV.b.>"], max_msgs_per_subject=-1),
        StreamConfig(name="KV_b", subjects=["$KV.b.>"], max_msgs_per_subject=65),
    ],
)
def test_streams_that_are_no_buckets(config: StreamConfig) -> None:
    with pytest.raises(BadBucketError, match="is no bucket"):
        config_of(config)


def test_a_status_leaves_out_what_servers_add() -> None:
    config = KeyValueConfig(bucket="b", ttl=5, metadata={"a": "1"}).stream_config()
    config.metadata["_nats.level"] = "1"
    status = status_of(StreamInfo(config=config, state=StreamState(messages=3, last_seq=9)))
    assert (status.bucket, status.values, status.revision) == ("b", 3, 9)
    assert (status.config.metadata, status.ttl, status.history) == ({"a": "1"}, 5 * 10**9, 1)


# -- codecs

ANY_KEY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(ANY_KEY.map(lambda token: token.replace(".", "x")), min_size=1, max_size=3))
def test_any_text_is_a_key_in_base64(tokens: list[str]) -> None:
    key = ".".join(tokens)
    encoded = Base64Keys().encode_key(key)
    assert wire.valid_key(encoded)
    assert encoded.count(".") == key.count(".")
    assert Base64Keys().decode_key(encoded) == key


def test_the_encodings_are_those_of_the_official_codecs() -> None:
    assert Base64Keys().encode_key("Acme Inc.contact") == "QWNtZSBJbmM.Y29udGFjdA"
    assert Base64Keys().encode_filter("Acme Inc.*.>") == "QWNtZSBJbmM.*.>"
    assert PathKeys().encode_key("/users/anna/") == "_root_.users.anna"
    assert PathKeys().encode_key("/") == "_root_"
    assert PathKeys().encode_filter("/users/*") == "_root_.users.*"
    assert Base64Values().encode_value(b"\xfb\xff?") == b"-_8_"
    assert Base64Values().decode_value(b"-_8_") == b"\xfb\xff?"


@given(st.lists(st.text("ab_-=", min_size=1), min_size=1, max_size=4), st.booleans())
def test_a_path_comes_back(tokens: list[str], rooted: bool) -> None:
    path = "/" * rooted + "/".join(tokens)
    if tokens[0] == "_root_":
        return  # the codec's own word
    encoded = PathKeys().encode_key(path)
    assert wire.valid_key(encoded)
    assert PathKeys().decode_key(encoded) == path
    assert PathKeys().decode_key("_root_") == "/"


def test_keys_that_a_codec_refuses() -> None:
    paths = bucket().with_keys(PathKeys())
    for key in ("a.b", "a//b", ""):
        with pytest.raises(InvalidKeyError, match="encoded"):
            paths._keyspace.write_subject(key)
    assert paths._keyspace.write_subject("/a") == "$KV.b._root_.a"


class Reversed:
    """A codec that cannot encode filters."""

    def encode_key(self, key: str) -> str:
        return key[::-1]

    def decode_key(self, key: str) -> str:
        return key[::-1]


def test_a_codec_without_filters_takes_keys_and_everything() -> None:
    assert not isinstance(Reversed(), FilterableKeyCodec)
    assert isinstance(Base64Keys(), FilterableKeyCodec)
    assert encoded_filter(Reversed(), "ab") == "ba"
    assert encoded_filter(Reversed(), ">") == ">"
    with pytest.raises(InvalidKeyError, match="Reversed cannot encode"):
        encoded_filter(Reversed(), "a.*")


@dataclass
class Sensor:
    name: str
    degrees: Annotated[float, msgspec.Meta(ge=-273)]


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_typed_values_are_checked_in_both_directions(form: Any) -> None:
    codec = TypedValues(Sensor, form)
    data = codec.encode_value(Sensor("oven", 180))
    assert codec.decode_value(data) == Sensor("oven", 180)
    with pytest.raises(InvalidValueError, match=r"key 'k' cannot be stored: .*-273"):
        encoded_value(codec, Sensor("oven", -300), "k")
    entry = KvEntry("b", "k", 1, 0, b"{}", {}, codec)
    with pytest.raises(InvalidValueError, match="holds an invalid value at revision 1") as caught:
        _ = entry.value
    assert isinstance(caught.value.__cause__, msgspec.DecodeError)
    assert entry.data == b"{}"


def test_values_that_are_no_bytes() -> None:
    assert encoded_value(PlainValues(), bytearray(b"x"), "k") == b"x"  # type: ignore[arg-type]  # accepted, too
    with pytest.raises(TypeError, match=r"a value is bytes, not str: .*typed\(str\)"):
        encoded_value(PlainValues(), "x", "k")  # type: ignore[arg-type]  # the mistake


# -- entries and errors


@pytest.mark.parametrize(
    ("headers", "operation"),
    [
        ({}, "PUT"),
        ({"Other": ["x"]}, "PUT"),
        ({"KV-Operation": ["DEL"]}, "DEL"),
        ({"KV-Operation": ["PURGE"], "Nats-Rollup": ["sub"]}, "PURGE"),
        ({"KV-Operation": ["unknown"]}, "PUT"),
        ({"Nats-Marker-Reason": ["MaxAge"]}, "PURGE"),
        ({"Nats-Marker-Reason": ["Purge"]}, "PURGE"),
        ({"Nats-Marker-Reason": ["Remove"]}, "DEL"),
    ],
)
def test_the_operation_of_a_stored_message(headers: dict[str, list[str]], operation: str) -> None:
    entry = KvEntry("b", "k", 7, 1_500_000_000_123_456_789, b"", headers, PlainValues())
    assert entry.operation == operation
    assert entry.deleted == (operation != "PUT")
    assert entry.created.isoformat() == "2017-07-14T02:40:00.123456+00:00"
    if entry.deleted:
        with pytest.raises(NoValueError, match=r"look at entry\.deleted"):
            _ = entry.value
    else:
        assert entry.value == b""


def test_an_entry_without_its_value_has_its_size() -> None:
    entry = KvEntry("b", "k", 7, 0, b"", {"Nats-Msg-Size": ["5"]}, PlainValues())
    assert (entry.size, entry.data) == (5, b"")
    with pytest.raises(NoValueError, match="was not delivered"):
        _ = entry.value


def test_conflicts_say_what_to_do_and_can_be_copied() -> None:
    for error in (RevisionConflictError("b", "k", 3, 10164, "wrong"), KeyExistsError("b", "k", 0)):
        assert isinstance(error, WrongLastSequenceError)
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), vars(again)) == (str(error), vars(error))
    assert "is not at revision 3" in str(RevisionConflictError("b", "k", 3))
    assert "key 'k' of bucket 'b' exists" in str(KeyExistsError("b", "k", 0))


# -- the position of a watch


def created(name: str, pending: int, last: int) -> ConsumerInfo:
    info = ConsumerInfo(name=name, num_pending=pending)
    info.delivered.stream_seq = last
    return info


def delivered(name: str, number: int, seq: int, pending: int) -> AckSubject:
    return AckSubject("", "", "KV_b", name, 1, seq, number, 0, pending)


def test_a_watch_that_loses_its_consumer_early_begins_with_the_last_values_again() -> None:
    position = WatchPosition("KV_b", ["$KV.b.>"], "last_per_subject", 1, headers_only=False)
    assert position.config().deliver_policy == "last_per_subject"
    position.started(created("one", 3, 0))
    for number, seq in ((1, 4), (2, 6)):
        assert position.take(delivered("one", number, seq, 3 - number))
        assert position.passes(delivered("one", number, seq, 3 - number))
    assert not position.caught_up
    assert position.config().deliver_policy == "last_per_subject"
    position.started(created("two", 3, 0))
    found = []
    for number, seq in ((1, 4), (2, 6), (3, 9)):
        assert position.take(delivered("two", number, seq, 3 - number))
        if position.passes(delivered("two", number, seq, 3 - number)):
            found.append(seq)
    assert found == [9]
    assert position.caught_up
    config = position.config()
    assert (config.deliver_policy, config.opt_start_seq) == ("by_start_sequence", 10)


def test_a_watch_of_an_empty_bucket_is_caught_up_at_once() -> None:
    position = WatchPosition("KV_b", ["$KV.b.>"], "last_per_subject", 1, headers_only=False)
    position.started(created("one", 0, 17))
    assert position.caught_up
    config = position.config()
    assert (config.deliver_policy, config.opt_start_seq) == ("by_start_sequence", 18)


def test_a_watch_notices_a_stream_that_went_back() -> None:
    position = WatchPosition("KV_b", ["$KV.b.>"], "last_per_subject", 1, headers_only=False)
    position.started(created("one", 1, 0))
    assert position.take(delivered("one", 1, 50, 0))
    assert position.passes(delivered("one", 1, 50, 0))
    position.config()
    position.started(created("two", 0, 50))
    assert not position.went_back
    position.started(created("three", 0, 7))
    assert position.went_back


def test_the_shells_have_one_handle_each() -> None:
    assert KeyValue.get is not sync.KeyValue.get
    assert repr(bucket()) == "<KeyValue b>"
