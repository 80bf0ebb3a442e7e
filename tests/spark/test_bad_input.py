"""What is wrong with what a user gave, or with what he may do, in every way of reading and writing:
an error of one line that names it, in time, and before anything was written or skipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.spark import connection
from pelton.spark.buckets.kv_options import parse_kv_options
from pelton.spark.buckets.kv_sink import plan_kv_write
from pelton.spark.buckets.kv_source import KvReader, KvStreamReader
from pelton.spark.buckets.object_sink import plan_object_write, write_objects
from pelton.spark.connection import ReadError
from pelton.spark.parsing import OptionError
from pelton.spark.reading.options import parse_options
from pelton.spark.reading.source import JetStreamReader
from pelton.spark.reading.streaming import JetStreamStreamReader
from pelton.spark.writing.row_errors import WriteError
from pelton.spark.writing.writer import plan_write, write_partition
from tests.certificates import Authority
from tests.peers import ServerProcess, available_servers
from tests.spark.calls import rows_of
from tests.spark.writing import batches, task

pytestmark = pytest.mark.peer

SECRET = "s3cr3t-pw"
PATIENCE_SECONDS = 18.0  # less than the timeouts below
DENIED = {
    "noinfo": "$JS.API.STREAM.INFO.*",
    "noconsumer": "$JS.API.CONSUMER.>",
    "noget": "$JS.API.STREAM.MSG.GET.*",
    "nolist": "$JS.API.STREAM.*",
    "nowrite": "orders.>",
    "nokeys": "$KV.devices.>",
    "noobjects": "$O.>",
    "norecords": "$KV.pelton_spark.>",
    "nopurge": "$JS.API.STREAM.PURGE.*",
}


def config_of(folder: Path) -> Path:
    users = [f'{{ user: all, password: "{SECRET}" }}']
    users += [
        f'{{ user: {name}, password: "{SECRET}", permissions: {{ publish: {{ deny: "{subject}" }} }} }}'
        for name, subject in DENIED.items()
    ]
    users.append(
        f'{{ user: noinbox, password: "{SECRET}",'
        ' permissions: { subscribe: { deny: "_INBOX.>" } } }'
    )
    path = folder / "accounts.conf"
    path.write_text(
        "accounts {\n  JS: { jetstream: enabled, users: [\n    "
        + "\n    ".join(users)
        + f'\n  ] }}\n  PLAIN: {{ users: [ {{ user: plain, password: "{SECRET}" }} ] }}\n}}\n'
    )
    return path


@pytest.fixture(scope="module", params=available_servers((2, 9)))
def secured(request, tmp_path_factory) -> Iterator[ServerProcess]:
    """A server whose users may do different things, with a stream, a bucket and an object store."""
    config = config_of(tmp_path_factory.mktemp("secured"))
    server = ServerProcess(request.param, arguments=["-c", str(config)])
    server.start()
    try:
        with connect(server.url, user="all", password=SECRET) as client:
            js = client.jetstream()
            js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
            for number in range(10):
                js.publish(f"orders.{number % 2}", b"x")
            js.create_stream(
                StreamConfig(
                    name="KV_devices",
                    subjects=["$KV.devices.>"],
                    max_msgs_per_subject=1,
                    allow_rollup_hdrs=True,
                    discard="new",
                )
            )
            js.publish("$KV.devices.a", b"1")
            js.create_stream(
                StreamConfig(
                    name="OBJ_photos",
                    subjects=["$O.photos.C.>", "$O.photos.M.>"],
                    allow_rollup_hdrs=True,
                    discard="new",
                )
            )
            js.create_stream(
                StreamConfig(
                    name="KV_pelton_spark",
                    subjects=["$KV.pelton_spark.>"],
                    max_msgs_per_subject=1,
                    allow_rollup_hdrs=True,
                    discard="new",
                    deny_delete=True,
                    allow_direct=True,
                    description="progress of writes from Spark",
                    duplicate_window=120,
                )
            )
        yield server
    finally:
        server.remove()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    connection.forget_all()


# -- every way of reading and writing, without a JVM


def read(given: dict[str, str]) -> int:
    options = {"stream": "ORDERS", "transport": "consumer", **given}
    reader = JetStreamReader(parse_options(options, streaming=False))
    return len(rows_of(reader, reader.partitions()))


def read_filtered(given: dict[str, str]) -> int:
    return read({"subject": "orders.1", **given})


def follow(given: dict[str, str]) -> int:
    options = {"stream": "ORDERS", "startingOffsets": "earliest", **given}
    reader = JetStreamStreamReader(parse_options(options, streaming=True))
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    return len(rows_of(reader, reader.partitions(begin, end)))


def read_keys(given: dict[str, str]) -> int:
    reader = KvReader(parse_kv_options({"bucket": "devices", **given}, streaming=False))
    return len(rows_of(reader, reader.partitions()))


def follow_keys(given: dict[str, str]) -> int:
    reader = KvStreamReader(parse_kv_options({"bucket": "devices", **given}, streaming=True))
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    return len(rows_of(reader, reader.partitions(begin, end)))


MESSAGES = pa.schema([("data", pa.binary())])
KEYS = pa.schema([("key", pa.string()), ("value", pa.binary())])
OBJECTS = pa.schema([("name", pa.string()), ("data", pa.binary())])
_writers = iter(range(1_000_000))


def _task() -> object:
    return task(writer=f"bad{next(_writers)}")


def write(given: dict[str, str]) -> int:
    options = {"stream": "ORDERS", "subject": "orders.1", **given}
    plan = plan_write(options, from_arrow_schema(MESSAGES))
    rows = batches([{"data": b"x"}] * 5, MESSAGES)
    return write_partition(plan, _task(), rows).rows


def write_anyhow(given: dict[str, str]) -> int:
    return write({"exactlyOnce": "none", **given})


def write_keys(given: dict[str, str]) -> int:
    plan = plan_kv_write({"bucket": "devices", **given}, from_arrow_schema(KEYS))
    return write_partition(plan, _task(), batches([{"key": "b", "value": b"x"}] * 5, KEYS)).rows


def write_objects_(given: dict[str, str]) -> int:
    plan = plan_object_write({"bucket": "photos", **given}, from_arrow_schema(OBJECTS))
    return write_objects(plan, _task(), batches([{"name": "b", "data": b"x"}] * 2, OBJECTS)).rows


Way = Callable[[dict[str, str]], int]
READS: tuple[Way, ...] = (read, read_filtered, follow, read_keys, follow_keys)
WRITES: tuple[Way, ...] = (write, write_anyhow, write_keys, write_objects_)
ALL = READS + WRITES


def refused(way: Way, given: dict[str, str], text: str) -> None:
    """It fails with an error of one line that says this, in time, and shows no secret."""
    options = {"requestTimeout": "20s", "retryTimeout": "30s", **given}
    begun = time.monotonic()
    with pytest.raises((ReadError, WriteError, OptionError), match=text) as caught:
        way(options)
    assert time.monotonic() - begun < PATIENCE_SECONDS
    said = str(caught.value)
    assert "\n" not in said
    assert SECRET not in said


def login(server: ServerProcess, user: str, password: str = SECRET) -> dict[str, str]:
    return {"servers": server.url, "user": user, "password": password}


@pytest.mark.parametrize("way", ALL)
def test_it_works_for_who_may_do_all(secured, way):
    assert way(login(secured, "all")) > 0


@pytest.mark.parametrize("way", ALL)
def test_credentials(secured, way):
    refused(way, login(secured, "all", "wr0ng"), r"cannot connect.*(?i:authorization)")
    refused(way, {"servers": secured.url}, r"cannot connect.*(?i:authorization)")
    url = secured.url.replace("//", f"//all:{SECRET}x@")
    refused(way, {"servers": url}, r"cannot connect.*(?i:authorization)")
    refused(way, {"servers": secured.url, "creds": "/nowhere/a.creds"}, r"/nowhere/a\.creds")
    refused(way, {"servers": secured.url, "nkey": "SUNOSEED"}, "neither the seed of a user")
    refused(way, {"servers": secured.url, "jwt": "no.jwt"}, "(?i)authorization|jwt")


@pytest.mark.parametrize("way", ALL)
def test_an_account_without_jetstream(secured, way):
    refused(way, login(secured, "plain"), "JetStream")


@pytest.mark.parametrize("way", ALL)
def test_answers_that_cannot_be_heard(secured, way):
    refused(way, login(secured, "noinbox"), r"(?i)permissions violation for subscription")
    own = {**login(secured, "noinbox"), "inboxPrefix": "_MINE"}
    assert way(own) > 0


NOT_ALLOWED = [("noinfo", way, r"(?i)permissions violation.*STREAM\.INFO") for way in ALL]
NOT_ALLOWED += [
    ("noconsumer", way, r"(?i)permissions violation.*CONSUMER\.CREATE")
    for way in (read, read_filtered, read_keys, follow_keys)
]
NOT_ALLOWED += [
    ("noget", way, r"(?i)permissions violation.*STREAM\.MSG\.GET")
    for way in (read_filtered, read_keys, follow_keys, write, write_keys, write_objects_)
]
NOT_ALLOWED += [
    ("nowrite", write, r"(?i)permissions violation.*orders\.1"),
    ("nowrite", write_anyhow, r"(?i)permissions violation.*orders\.1"),
    ("nokeys", write_keys, r"(?i)permissions violation.*\$KV\.devices"),
    ("noobjects", write_objects_, r"(?i)permissions violation.*\$O\.photos"),
    ("norecords", write, r"(?i)permissions violation.*\$KV\.pelton_spark"),
    ("norecords", write_keys, r"(?i)permissions violation.*\$KV\.pelton_spark"),
    ("norecords", write_objects_, r"(?i)permissions violation.*\$KV\.pelton_spark"),
    ("nopurge", write_objects_, r"(?i)permissions violation.*STREAM\.PURGE"),
]


@pytest.mark.parametrize(("user", "way", "text"), NOT_ALLOWED)
def test_what_a_user_may_not_do(secured, user, way, text):
    refused(way, login(secured, user), text)


@pytest.mark.parametrize("way", ALL)
def test_no_such_server_and_no_address(way):
    refused(way, {"servers": "nats://127.0.0.1:1"}, r"cannot connect to nats://127\.0\.0\.1:1")
    for wrong in ("nats://", "http://127.0.0.1:1", "nats://127.0.0.1:port", "nats://a b:1"):
        refused(way, {"servers": wrong}, "cannot connect to|option servers")


@pytest.mark.parametrize("way", ALL)
def test_options(secured, way):
    good = login(secured, "all")
    refused(way, {**good, "nope": "1"}, "has no option 'nope'. The options are: ")
    refused(way, {**good, "requestTimeout": "soon"}, "requestTimeout is 'soon', but must be")
    refused(way, {**good, "token": "t"}, "give either token, or user and password")
    refused(way, {**good, "tlsCert": "a.pem"}, "tlsCert and tlsKey go together")


def test_names(secured):
    good = login(secured, "all")
    for way in (read, follow, write):
        refused(way, {**good, "stream": "NOBODY"}, "there is no stream NOBODY on ")
        refused(way, {**good, "stream": "A.B"}, "option stream is 'A.B', but must be")
    for way in (read_keys, follow_keys, write_keys):
        refused(way, {**good, "bucket": "nobody"}, "there is no bucket nobody on ")
        refused(way, {**good, "bucket": "a.b"}, r"option bucket is 'a\.b', but must be")
    refused(write_objects_, {**good, "bucket": "nobody"}, "there is no object store nobody on ")


@pytest.fixture(scope="module", params=available_servers((2, 9)))
def tls(request, tmp_path_factory) -> Iterator[tuple[ServerProcess, Path]]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    issued = authority.server()
    other = Authority(folder, "other")
    config = folder / "tls.conf"
    config.write_text(
        f'tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}", timeout: 2 }}\n'
    )
    server = ServerProcess(request.param, arguments=["-c", str(config)])
    server.start()
    try:
        yield server, Path(other.ca_file)
    finally:
        server.remove()


@pytest.mark.parametrize("way", [read, follow, read_keys, write, write_keys, write_objects_])
def test_tls(tls, way, tmp_path):
    server, other = tls
    refused(way, {"servers": server.url}, r"cannot connect.*(?i:certificate)")
    refused(way, {"servers": server.url, "tlsCa": str(other)}, r"cannot connect.*(?i:certificate)")
    refused(way, {"servers": server.url, "tlsCa": "/nowhere/ca.pem"}, r"/nowhere/ca\.pem")
    (tmp_path / "no.pem").write_text("nothing")
    refused(way, {"servers": server.url, "tlsCa": str(tmp_path / "no.pem")}, r"no\.pem")
    url = server.url.replace("nats://", "tls://")
    refused(way, {"servers": url, "tlsFirst": "true"}, "cannot connect")
