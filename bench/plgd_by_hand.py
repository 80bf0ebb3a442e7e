"""A plgd hub's events into Delta tables as one writes it without Pelton, for comparison.

nats-py pulls the messages, a Python function of Spark decodes them row by row with protobuf, snappy and cbor2, and
deltalake appends to the table of events and merges into that of the latest twins. The messages are acked when both
tables have them. What is left out makes it faster: gaps, commands, sessions and the other tables, and whatever
keeps a batch from being there twice if it is killed between the two tables.
"""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import cbor2
import nats
from cramjam import snappy
from deltalake import DeltaTable, write_deltalake
from nats.js.api import AckPolicy, ConsumerConfig
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the customary name

from pelton.plgd.wire import envelope_pb2, events_pb2, registrations_pb2

FETCH = 5000
CLASSES = {
    name.lower(): getattr(events_pb2, name) for name in events_pb2.DESCRIPTOR.message_types_by_name
}
KINDS = ("resources", "metadata", "resource-links")
COLUMNS = {
    "string": "kind event_type owner_id device_id href aggregate_id hub_id user_id owner correlation_id"
    " connection_id status content_type content_json resource_interface connection_status protocol"
    " service_id twin_state",
    "bigint": "version timestamp_ns sequence valid_until_ns connected_at_ns syncing_at_ns in_sync_at_ns"
    " force_synchronization_at_ns",
    "int": "content_format",
    "binary": "content etag",
    "array<string>": "device_ids resource_types hrefs local_endpoints",
    "boolean": "twin_enabled",
    "timestamp": "time",
}
TYPES = {name: kind for kind, names in COLUMNS.items() for name in names.split()}
NAMES = list(TYPES)
EVENT = "struct<" + ", ".join(f"{name}: {kind}" for name, kind in TYPES.items()) + ">"
MESSAGE = "seq bigint, received bigint, subject string, data binary"


def plain(value: object) -> object:
    """What JSON has no word for."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def json_of(content: object) -> str | None:
    """A content as JSON."""
    if not content.data:
        return None
    if "cbor" in content.content_type:
        return json.dumps(cbor2.loads(content.data), default=plain)
    return content.data.decode()


def registration(payload: bytes) -> dict[str, object]:
    """The columns of a registration."""
    wrapper = registrations_pb2.Event.FromString(bytes(snappy.decompress_raw(payload)))
    message = getattr(wrapper, wrapper.WhichOneof("type"))
    return {
        "device_ids": list(message.device_ids),
        "owner": message.owner,
        "timestamp_ns": message.timestamp,
        "user_id": message.audit_context.user_id,
        "hub_id": message.event_metadata.hub_id,
    }


def of_device(payload: bytes) -> dict[str, object]:
    """The columns of an event of a device."""
    envelope = envelope_pb2.Event.FromString(payload)
    message = CLASSES[envelope.event_type].FromString(bytes(snappy.decompress_raw(envelope.data)))
    meta, fields = message.event_metadata, message.DESCRIPTOR.fields_by_name
    row = {
        "device_id": envelope.group_id,
        "aggregate_id": envelope.aggregate_id,
        "version": envelope.version,
        "timestamp_ns": meta.timestamp,
        "hub_id": meta.hub_id,
        "connection_id": meta.connection_id,
        "sequence": meta.sequence,
    }
    if "audit_context" in fields:
        audit = message.audit_context
        row |= {
            "user_id": audit.user_id,
            "correlation_id": audit.correlation_id,
            "owner": audit.owner,
        }
    if "resource_id" in fields:
        row["href"] = message.resource_id.href
    if "content" in fields:
        content = message.content
        row |= {"content": content.data, "content_type": content.content_type}
        row |= {"content_format": content.coap_content_format, "content_json": json_of(content)}
    if "status" in fields:
        row["status"] = events_pb2.Status.Name(message.status)
    if "etag" in fields:
        etag = message.etag
        row["etag"] = etag if isinstance(etag, bytes) else next(iter(etag), None)
    for name in ("resource_types", "hrefs"):
        if name in fields:
            row[name] = list(getattr(message, name))
    if "resources" in fields:
        row["hrefs"] = [one if isinstance(one, str) else one.href for one in message.resources]
    if "resource_interface" in fields:
        row["resource_interface"] = message.resource_interface
    if "valid_until" in fields:
        row["valid_until_ns"] = message.valid_until
    if "connection" in fields:
        row |= metadata(message)
    return row


def metadata(message: object) -> dict[str, object]:
    """The columns of an update of a device's metadata."""
    connection, twin = message.connection, message.twin_synchronization
    return {
        "connection_status": connection.Status.Name(connection.status),
        "protocol": connection.Protocol.Name(connection.protocol),
        "connected_at_ns": connection.connected_at,
        "service_id": connection.service_id,
        "local_endpoints": list(connection.local_endpoints),
        "twin_state": twin.State.Name(twin.state),
        "twin_enabled": message.twin_enabled,
        "syncing_at_ns": twin.syncing_at,
        "in_sync_at_ns": twin.in_sync_at,
        "force_synchronization_at_ns": twin.force_synchronization_at,
    }


def event_row(subject: str, payload: bytes) -> tuple[object, ...]:
    """The row of one message."""
    tokens = subject.split(".")
    if tokens[3] == "registrations":
        row = registration(payload) | {"kind": "registrations"}
    else:
        row = of_device(payload) | {"kind": next(kind for kind in KINDS if kind in tokens)}
    row |= {"owner_id": tokens[2], "event_type": tokens[-1]}
    row["time"] = datetime.fromtimestamp(row["timestamp_ns"] / 1e9, UTC)
    return tuple(map(row.get, NAMES))


def take(spark: SparkSession, messages: list[tuple[object, ...]], folder: str) -> None:
    """A batch of messages into both tables."""
    decode = F.udf(event_row, EVENT)
    rows = spark.createDataFrame(messages, MESSAGE)
    rows = rows.select("seq", "received", decode("subject", "data").alias("event"))
    rows = rows.select("seq", "received", "event.*").withColumn("day", F.to_date("time")).persist()
    write_deltalake(f"{folder}/events", rows.toArrow(), mode="append", partition_by=["day"])
    newest = Window.partitionBy("aggregate_id").orderBy(F.desc("timestamp_ns"))
    twins = (
        rows.where("event_type = 'resourcechanged'")
        .withColumn("place", F.row_number().over(newest))
        .where("place = 1")
        .select("aggregate_id", "device_id", "href", "version", "timestamp_ns", "time", "status")
        .toArrow()
    )
    rows.unpersist()
    path = f"{folder}/twin_latest"
    if not DeltaTable.is_deltatable(path):
        write_deltalake(path, twins)
        return
    merge = DeltaTable(path).merge(
        twins, "t.aggregate_id = s.aggregate_id", source_alias="s", target_alias="t"
    )
    merge = merge.when_matched_update_all("s.timestamp_ns > t.timestamp_ns")
    merge.when_not_matched_insert_all().execute()


def sizes(count: int, batch: int) -> Iterator[int]:
    """The batches of a number of messages."""
    for start in range(0, count, batch):
        yield min(batch, count - start)


async def run(
    spark: SparkSession, url: str, stream: str, count: int, batch: int, folder: str
) -> None:
    """The first ``count`` messages of a stream into the tables of a folder."""
    client = await nats.connect(url)
    js = client.jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.ALL, ack_wait=600, max_ack_pending=2 * batch)
    puller = await js.pull_subscribe("", durable="by-hand", stream=stream, config=config)
    puller.pending_msgs_limit = -1
    for size in sizes(count, batch):
        messages: list[tuple[object, ...]] = []
        while len(messages) < size:
            for message in await puller.fetch(min(FETCH, size - len(messages)), timeout=30):
                meta = message.metadata
                received = int(meta.timestamp.timestamp() * 1e6)
                messages.append((meta.sequence.stream, received, message.subject, message.data))
        take(spark, messages, folder)
        await message.ack_sync()
    await js.delete_consumer(stream, "by-hand")
    await client.close()
