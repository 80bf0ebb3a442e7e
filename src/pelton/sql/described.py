"""Streams and consumers as rows of the tables ``streams`` and ``consumers``."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from pelton.api import encode
from pelton.arrow import TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.api.streams import StreamConfig, StreamState
    from pelton.client.base.models import ConsumerInfo

STREAMS = pa.schema(
    [
        ("name", pa.string()),
        ("subjects", pa.list_(pa.string())),
        ("storage", pa.string()),
        ("retention", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("first_ts", TIMESTAMP),
        ("last_ts", TIMESTAMP),
        ("created", TIMESTAMP),
        ("config", pa.string()),
    ]
)
"""``config`` is the whole configuration as JSON."""

CONSUMERS = pa.schema(
    [
        ("stream", pa.string()),
        ("name", pa.string()),
        ("durable", pa.bool_()),
        ("filter_subjects", pa.list_(pa.string())),
        ("ack_policy", pa.string()),
        ("delivered_seq", pa.int64()),
        ("ack_floor_seq", pa.int64()),
        ("num_ack_pending", pa.int64()),
        ("num_redelivered", pa.int64()),
        ("num_pending", pa.int64()),
        ("num_waiting", pa.int64()),
        ("paused", pa.bool_()),
        ("created", TIMESTAMP),
        ("config", pa.string()),
    ]
)
"""``delivered_seq`` and ``ack_floor_seq`` are stream sequences. Null where only a server knows it."""


def stream_row(config: StreamConfig, state: StreamState, created_ns: int) -> dict[str, object]:
    """One row of ``streams``."""
    return {
        "name": config.name,
        "subjects": config.subjects,
        "storage": config.storage,
        "retention": config.retention,
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
        "first_ts": moment(state.first_ts),
        "last_ts": moment(state.last_ts),
        "created": moment(created_ns),
        "config": encode(config).decode("utf-8", "replace"),
    }


def consumer_row(stream: str, info: ConsumerInfo) -> dict[str, object]:
    """One row of ``consumers``, from a server."""
    config = msgspec.json.decode(encode(info.config)) if info.config is not None else {}
    return _config_row(stream, info.name, config) | {
        "delivered_seq": info.delivered.stream_seq,
        "ack_floor_seq": info.ack_floor.stream_seq,
        "num_ack_pending": info.num_ack_pending,
        "num_redelivered": info.num_redelivered,
        "num_pending": info.num_pending,
        "num_waiting": info.num_waiting,
        "paused": info.paused,
        "created": moment(info.created),
    }


def stored_consumer_row(stream: str, told: Mapping[str, Any]) -> dict[str, object]:
    """One row of ``consumers``, from what store/describe tells of a consumer in a folder."""
    row = _config_row(stream, str(told["name"]), told.get("config") or {})
    state = told.get("state")
    if state:
        row |= {
            "delivered_seq": state["delivered_stream_seq"],
            "ack_floor_seq": state["ack_floor_stream_seq"],
            "num_ack_pending": len(state["unacknowledged"]),
            "num_redelivered": sum(each["deliveries"] > 1 for each in state["unacknowledged"]),
        }
    return row


def _config_row(stream: str, name: str, config: Mapping[str, Any]) -> dict[str, object]:
    one = config.get("filter_subject")
    return {
        "stream": stream,
        "name": name,
        "durable": bool(config.get("durable_name")),
        "filter_subjects": [one] if one else list(config.get("filter_subjects") or ()),
        "ack_policy": config.get("ack_policy"),
        "config": msgspec.json.encode(config).decode(),
    }


def moment(ns: int | None) -> datetime.datetime | None:
    """A time in the precision of a table; None for none."""
    if not ns or ns < 0:
        return None
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(microseconds=ns // 1000)
